-- fq_move_due: move up to p_limit channels of a queue, whose time has come, into the ready order.
-- They waited for their first message, for their rate, for a limit, or were configured. p_from: times before it are
-- passed over; p_virtual_time: where they start at the earliest.
-- Guarantees: returns how many became ready.
-- Locks: state rows for no key update, skip locked: it waits for none.
-- Index: fq_channel_state_ready_ix; rows by ctid. Errors: none.
create function fairqueue.fq_move_due(
  p_queue text,
  p_now bigint,
  p_from bigint,
  p_limit integer,
  p_virtual_time bigint
)
returns integer
language plpgsql
volatile
as $$
declare
  v_moved integer;
begin
  -- A row that changed since the snapshot fails the join on row_version when PostgreSQL checks it again.
  with due as materialized (
    select s.ctid as row,
      greatest(s.head_dequeue_at, fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst)) as until
    from (
      select r.ctid as row, r.row_version, r.channel_id, r.next_dequeue_at
      from fairqueue.fq_channel_state r
      where r.queue = p_queue
        and r.next_dequeue_at is not null
        and (r.max_concurrency is null or r.current_concurrency < r.max_concurrency)
        and r.next_dequeue_at >= greatest(0, p_from)
        and r.next_dequeue_at <= p_now
      order by r.queue, r.next_dequeue_at, r.channel_id
    ) waiting
    join fairqueue.fq_channel_state s
      on s.ctid = waiting.row
      and s.row_version is not distinct from waiting.row_version
      and s.channel_id is not distinct from waiting.channel_id
    order by waiting.next_dequeue_at, waiting.channel_id
    limit p_limit
    for no key update of s skip locked
  ),
  waited as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      tag = case when d.until > p_now then s.tag else greatest(s.tag, p_virtual_time) end,
      tag_rest = greatest(0, s.tag_rest),
      next_dequeue_at = case when d.until > p_now then d.until else greatest(s.tag, p_virtual_time) end
    from due d
    where s.ctid = d.row
    returning s.next_dequeue_at
  )
  select count(*) into v_moved
  from waited w
  where w.next_dequeue_at < 0;
  return v_moved;
end
$$;
