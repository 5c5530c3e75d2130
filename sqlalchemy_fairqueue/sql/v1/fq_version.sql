-- fq_version: the version of the installed schema. In unreleased schemas it returns an integer, not a smallint, and
-- their numbers mean other versions: they are refused.
-- Guarantees: changes only by an upgrade or a downgrade. Locks: none. Errors: none.
create function fairqueue.fq_version()
returns smallint
language sql
immutable parallel safe
as $$
  select 1::smallint
$$;
