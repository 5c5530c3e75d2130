-- fq_end_member: note the end of a member of a group that no consumer held, or that was cancelled while a consumer held
-- it, even if the consumer completed it then. The trigger of fq_message calls it for each such row that is deleted, in
-- whatever way. Those that a consumer held are noted by fq_end_members, a call at once.
-- Guarantees: one note a member, with the transaction that ends it. fq_fail_member makes 'failed' of it.
-- Locks: none. Index: fq_group_note_pkey. Errors: none.
create function fairqueue.fq_end_member()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into fairqueue.fq_group_note (id, group_id, cancelled)
  values (old.id, old.group_id, 1);
  return null;
end
$$;
