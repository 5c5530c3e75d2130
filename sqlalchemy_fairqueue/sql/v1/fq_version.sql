-- fq_version: the version of the installed schema. An integer instead of a smallint: an unreleased version, whose
-- numbers mean others, and which is refused.
-- Guarantees: changes only by an upgrade or a downgrade. Locks: none. Errors: none.
create function fairqueue.fq_version()
returns smallint
language sql
immutable parallel safe
as $$
  select 1::smallint
$$;
