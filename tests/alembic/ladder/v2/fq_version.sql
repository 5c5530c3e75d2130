-- fq_version: the version of the installed schema.
-- Guarantees: changes only by an upgrade or a downgrade. Locks: none. Errors: none.
create function fairqueue.fq_version()
returns integer
language sql
immutable parallel safe
as $$
  select 2
$$;
