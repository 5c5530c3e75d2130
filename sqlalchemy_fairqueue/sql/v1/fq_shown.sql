-- fq_shown: a text as error messages show it: quoted, and cut to its first 80 characters with its length in bytes.
-- One expression, which the planner inlines. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_shown(p_value text)
returns text
language sql
stable parallel safe
as $$
  select case
    when p_value is null then 'null'
    when pg_catalog.length(p_value) operator(pg_catalog.<=) 80 then pg_catalog.quote_literal(p_value)
    else pg_catalog.format('%L..., %s bytes'::text, pg_catalog."left"(p_value, 80), pg_catalog.octet_length(p_value))
  end
$$;
