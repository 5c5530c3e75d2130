-- fq_end_members: note that members of groups have ended that a consumer held. For later versions: this one knows no
-- groups, and notes nothing. complete, bury and quarantine call it for messages with a group that were not cancelled.
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
