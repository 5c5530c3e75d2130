-- fq_first_ready: the first ready channel of a queue from a place in the ready order on, whether somebody has it locked
-- or not: its start tag and id; next_tag: where it will stand after one message. No row: none is ready. p_by_cost:
-- messages move the tag by their cost, and not by 1; p_is_timed: as fq_estimate.
-- Guarantees: one query, which the planner inlines. Locks: none. Index: fq_channel_state_ready_ix, fq_message_pkey.
-- Errors: none.
create function fairqueue.fq_first_ready(
  p_queue text, p_floor bigint, p_channel bigint, p_by_cost boolean, p_is_timed boolean
)
returns table (tag bigint, channel_id bigint, next_tag bigint)
language sql
stable
as $$
  select s.ready_tag, s.channel_id,
    fairqueue.fq_tag_after(
      s.ready_tag, s.tag_rest,
      (case
        when p_by_cost then coalesce(
          (select m.cost from fairqueue.fq_message m where m.id = s.head_message_id),
          fairqueue.fq_estimate(s.mean_cost, p_is_timed)
        )
        else 1
      end)::bigint,
      s.weight
    )
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.ready_tag is not null
    and (s.ready_tag, s.channel_id) >= (p_floor, p_channel)
  order by s.queue, s.ready_tag, s.channel_id
  limit 1
$$;
