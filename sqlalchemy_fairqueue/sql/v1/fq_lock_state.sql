-- fq_lock_state: lock the state row of a channel. Returns its place; null: the channel has none.
-- Guarantees: until the transaction ends nobody else changes the row, and dequeues pass the channel by.
-- Locks: the newest version of the state row, for no key update; waits for who has it.
-- Index: fq_channel_state_newest_ix. Errors: 40001.
create function fairqueue.fq_lock_state(p_channel_id bigint)
returns tid
language plpgsql
as $$
begin
  return (
    select s.ctid
    from fairqueue.fq_channel_state s
    where s.channel_id = p_channel_id
    order by s.channel_id desc, s.row_version desc
    limit 1
    for no key update
  );
end
$$;
