-- fq_first_ready: the first ready channel of a queue, from a place in the ready order on, whether somebody has it locked
-- or not: its start tag, its id, and what fq_tag_after takes. No row: none is ready.
-- Guarantees: one query, which the planner inlines. Locks: none. Index: fq_channel_state_ready_ix. Errors: none.
create function fairqueue.fq_first_ready(p_queue text, p_floor bigint, p_channel bigint)
returns table (tag bigint, channel_id bigint, tag_rest bigint, weight integer, head_message_id bigint)
language sql
stable
as $$
  select s.ready_tag, s.channel_id, s.tag_rest, s.weight, s.head_message_id
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.ready_tag is not null
    and (s.ready_tag, s.channel_id) >= (p_floor, p_channel)
  order by s.queue, s.ready_tag, s.channel_id
  limit 1
$$;
