-- fq_version: the version of the installed schema. If it returns an integer instead of a smallint, the version is an
-- unreleased one, which numbered differently and is refused.
-- Guarantees: changes only by an upgrade or a downgrade. Locks: none. Errors: none.
create function fairqueue.fq_version()
returns smallint
language sql
immutable parallel safe
as $$
  select 1::smallint
$$;
