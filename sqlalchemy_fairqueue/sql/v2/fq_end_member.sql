-- fq_end_member: note that a member of a group has ended. The trigger of fq_message calls it for each deleted row that
-- has a group, in whatever way the row was deleted.
-- Guarantees: one note a member, with the transaction that ends it. 'cancelled': nobody held it, or it was cancelled
-- while a consumer held it, also if that completed it; else 'done'. fq_fail_member makes 'failed' of both.
-- Locks: none. Index: fq_group_note_pkey. Errors: none.
create function fairqueue.fq_end_member()
returns trigger
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if num_nulls(old.lease_id) = 1 or old.cancelled then
    insert into fairqueue.fq_group_note (id, group_id, cancelled)
    values (old.id, old.group_id, 1);
  else
    insert into fairqueue.fq_group_note (id, group_id, done)
    values (old.id, old.group_id, 1);
  end if;
  return null;
end
$$;
