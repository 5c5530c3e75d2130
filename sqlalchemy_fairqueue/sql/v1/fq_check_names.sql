-- fq_check_names: refuse names of queues and channels that an index could not keep.
-- Guarantees: every name has 1 to 512 bytes. Locks: none. Index: none. Errors: QF001.
create function fairqueue.fq_check_names(p_names text[])
returns void
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_bad text;
begin
  select u.name into v_bad
  from unnest(p_names) u(name)
  where u.name is null
    or octet_length(u.name) not between 1 and 512
  limit 1;
  if found or p_names is null then
    raise exception 'a queue or channel name has % bytes', coalesce(octet_length(v_bad), 0)
      using errcode = 'QF001',
        detail = left(coalesce(v_bad, 'null'), 80),
        hint = 'use a name of 1 to 512 bytes of UTF-8';
  end if;
end
$$;
