-- fq_count_backlog: the backlog of a channel that its state row is to have, counted anew: the messages that nobody
-- holds, without those that signals will still add.
-- Guarantees: one statement, one snapshot, and the caller has the channel's state row locked, so that nobody applies
-- its signals meanwhile.
-- Cost: the channel's stretch of fq_message_ready_ix, and the queue's signals. Locks: none.
-- Index: fq_message_ready_ix, fq_signal_pkey. Errors: none.
create function fairqueue.fq_count_backlog(p_queue text, p_channel_id bigint)
returns bigint
language plpgsql
volatile
as $$
begin
  return (
    select (
      select count(*)
      from fairqueue.fq_message m
      where m.channel_id = p_channel_id
        and m.lease_id is null
    ) - (
      select coalesce(sum(g.added), 0)
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.channel_id = p_channel_id
    )
  );
end
$$;
