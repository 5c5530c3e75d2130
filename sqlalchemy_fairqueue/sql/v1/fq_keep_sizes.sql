-- fq_keep_sizes: write the sizes of the ten largest tables at this hour, unless they are there.
-- Guarantees: one row a table and hour, however many workers call; in the order of their names, so that two calls
-- never wait for each other.
-- Cost: a probe; once an hour the sizes of the files of all tables. Locks: access share on each table, which waits for
-- who truncates or alters one; waits for another call that writes the same rows.
-- Index: fq_size_pkey. Errors: none.
create function fairqueue.fq_keep_sizes()
returns void
language plpgsql
as $$
declare
  c_hour constant bigint := 3600000000;
  v_at bigint := fairqueue.fq_now() / c_hour * c_hour;
begin
  if exists (select from fairqueue.fq_size s where s.at = v_at) then
    return;
  end if;
  insert into fairqueue.fq_size (at, name, bytes)
  select v_at, l.name, l.bytes
  from (
    select coalesce(p.relname, c.relname) as name, sum(pg_total_relation_size(c.oid)) as bytes
    from pg_class c
    left join pg_inherits i on i.inhrelid = c.oid
    left join pg_class p on p.oid = i.inhparent
    where c.relnamespace = (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_message))
      and c.relkind = 'r'
      and starts_with(c.relname, 'fq_')
    group by 1
    order by 2 desc, 1
    limit 10
  ) l
  order by l.name
  on conflict do nothing;
end
$$;
