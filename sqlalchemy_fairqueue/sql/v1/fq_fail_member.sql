-- fq_fail_member: note that a member of a group has failed. A trigger of fq_dead_letter calls it for each message that
-- becomes a dead letter, right after the message was deleted.
-- Guarantees: the note that fq_end_member wrote in this transaction says 'failed' now; without one nothing changes.
-- Locks: only rows of the transaction itself. Index: fq_group_note_pkey. Errors: none.
create function fairqueue.fq_fail_member()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  update fairqueue.fq_group_note n
  set done = 0,
    cancelled = 0,
    failed = 1
  where n.xid = pg_current_xact_id_if_assigned()
    and n.id = new.message_id;
  return null;
end
$$;
