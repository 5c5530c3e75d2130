-- fq_next_cost: what the message costs that a queue would deliver first; null: no channel is ready.
-- Guarantees: as the dispatcher knows it. Locks: none. Index: fq_queue_state_newest_ix, fq_channel_state_ready_ix;
-- those of fq_head_cost. Errors: none.
create function fairqueue.fq_next_cost(p_queue text)
returns bigint
language sql
stable
as $$
  select fairqueue.fq_head_cost(p_queue, s.head_message_id, s.mean_cost)
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.ready_tag >= (select n.ready_floor from fairqueue.fq_newest_dispatch(p_queue) n)
  order by s.queue, s.ready_tag, s.channel_id
  limit 1
$$;
