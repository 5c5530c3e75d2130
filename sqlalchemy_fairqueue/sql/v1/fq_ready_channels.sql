-- fq_ready_channels: the channels of a queue that may be served at p_now, in the ready order, from a place in it on,
-- whether somebody has them locked or not: the place of the state row and its version, the start tag, the channel's id.
-- Guarantees: one query, which the planner inlines. Locks: none. Index: fq_channel_state_ready_ix. Errors: none.
create function fairqueue.fq_ready_channels(p_queue text, p_floor bigint, p_channel bigint, p_now bigint)
returns table (state_row tid, row_version bigint, tag bigint, channel_id bigint)
language sql
stable
as $$
  select s.ctid, s.row_version, s.ready_tag, s.channel_id
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.ready_tag is not null
    and (s.ready_tag, s.channel_id) >= (p_floor, p_channel)
    and s.head_dequeue_at <= p_now
    and (fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst) <= p_now) is not false
  order by s.queue, s.ready_tag, s.channel_id
$$;
