-- fq_move_due: make channels of a queue ready whose time has come, up to p_limit of them: their first message is due,
-- or their rate allows it. p_from: earlier times are passed over; p_virtual_time: where they start at the earliest.
-- Returns how many became ready.
-- Guarantees: a channel that still may not be served waits for another time, or for a signal.
-- Locks: state rows for no key update, skip locked: it waits for none. Index: fq_channel_state_due_ix; rows by ctid.
-- Errors: none.
create function fairqueue.fq_move_due(
  p_queue text, p_now bigint, p_from bigint, p_limit integer, p_virtual_time bigint
)
returns integer
language plpgsql
as $$
declare
  v_moved integer;
begin
  -- Why the join is so: see fq_choose_one.
  with due as materialized (
    select s.ctid as row,
      fairqueue.fq_opens_at(
        s.head_dequeue_at, s.paused_at,
        fairqueue.fq_has_room(s.max_concurrency, s.current_concurrency::bigint, s.max_cost_out, s.current_cost), s.rate_at,
        s.rate_interval, s.rate_burst
      ) as opens_at
    from (
      select r.ctid as row, r.row_version, r.channel_id, r.due_at
      from fairqueue.fq_channel_state r
      where r.queue = p_queue
        and r.due_at >= p_from
        and r.due_at <= p_now
      order by r.queue, r.due_at, r.channel_id
    ) waiting
    join fairqueue.fq_channel_state s
      on s.ctid = waiting.row
      and s.row_version is not distinct from waiting.row_version
      and s.channel_id is not distinct from waiting.channel_id
    order by waiting.due_at, waiting.channel_id
    limit p_limit
    for no key update of s skip locked
  ),
  waited as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      tag = case when d.opens_at <= p_now then greatest(s.tag, p_virtual_time) else s.tag end,
      tag_rest = greatest(0, s.tag_rest),
      ready_tag = case when d.opens_at <= p_now then greatest(s.tag, p_virtual_time) end,
      due_at = case when d.opens_at > p_now then d.opens_at end
    from due d
    where s.ctid = d.row
    returning s.ready_tag
  )
  select count(*) into v_moved
  from waited w
  where w.ready_tag is not null;
  return v_moved;
end
$$;
