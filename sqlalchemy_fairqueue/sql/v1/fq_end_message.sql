-- fq_end_message: when the row of a message is deleted, by whatever statement, begin the period of its key if that
-- counts from the end, and note the end of a group's member that was not leased, or was cancelled while it was leased,
-- even if its consumer completed it then. fq_end_members notes the other ends, all of a call at once.
-- Guarantees: as the deletion, also if that is rolled back. fq_bury_messages makes 'failed' of the note.
-- Locks: the row of the key, which nobody else writes before the message has ended.
-- Index: fq_key_period_ends_ix, fq_group_note_pkey. Errors: none.
create function fairqueue.fq_end_message()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  if old.key_outlives then
    update fairqueue.fq_key_period k
    set expires_at = fairqueue.fq_now() + k.unique_for
    where k.message_id = old.id
      and k.expires_at is null;
  end if;
  if old.group_id is not null and (old.lease_id is null or old.cancelled) then
    insert into fairqueue.fq_group_note (id, group_id, cancelled)
    values (old.id, old.group_id, 1);
  end if;
  return null;
end
$$;
