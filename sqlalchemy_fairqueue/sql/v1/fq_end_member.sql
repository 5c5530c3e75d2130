-- fq_end_member: note the end of a group's member that was not leased or was cancelled while it was leased, even if its
-- consumer completed it then. A trigger of fq_message calls it for each such row that is deleted, however that happens.
-- The ends of other members are noted by fq_end_members, all of a call at once.
-- Guarantees: one note a member, in the transaction that ends it. fq_fail_member makes 'failed' of it.
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
