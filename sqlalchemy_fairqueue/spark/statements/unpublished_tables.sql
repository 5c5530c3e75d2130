-- The tables that their publication lacks, or whose inserts or deletes it does not publish. Deletes of the history are
-- not needed.
select t.name
from unnest(%(tables)s::text[], %(publications)s::text[]) t(name, publication)
where not exists (
  select
  from pg_publication p
  join pg_publication_tables x on x.pubname = p.pubname
  where p.pubname = t.publication
    and x.schemaname = %(schema)s
    and x.tablename = t.name
    and p.pubinsert
    and (p.pubdelete or t.name = 'fq_history')
)
