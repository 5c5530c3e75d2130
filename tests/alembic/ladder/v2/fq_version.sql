-- fq_version: the version of the installed schema.
-- Guarantees: changes only by an upgrade or a downgrade. Locks: none. Errors: none.
create function fairqueue.fq_version()
returns smallint
language sql
immutable parallel safe
as $$
  select 2::smallint
$$;
