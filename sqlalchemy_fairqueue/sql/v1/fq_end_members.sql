-- fq_end_members: note the ends of members of groups that a consumer held. Version 1 has no groups, so here it does
-- nothing; version 2 replaces it. complete, bury and quarantine call it for messages with a group that were not
-- cancelled.
-- Locks: none. Errors: none.
create function fairqueue.fq_end_members(p_ids bigint[], p_group_ids uuid[], p_failed boolean)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
end
$$;
