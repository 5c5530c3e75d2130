-- fq_mark_idle_channels: mark channels that have been idle for as long as their queue keeps them, among the p_limit
-- channels with ids after p_after. Returns the last id that was read (null: there are no more) and how many are marked.
-- Guarantees: it marks a channel only if the channel was made, and served last, before that time, has no message that
-- the dispatcher knows of, is not paused, and is not configured by itself. A dequeue ignores the mark; an enqueue to
-- the channel removes it. fq_forget_channels deletes marked channels.
-- Cost: two index probes a channel that is read.
-- Locks: state rows for no key update, skip locked: it waits for none. Index: fq_channel_pkey,
-- fq_channel_state_newest_ix, fq_queue_pkey. Errors: QF001 bad limit.
create function fairqueue.fq_mark_idle_channels(
  p_after bigint, p_limit integer, out last_id bigint, out marked bigint
)
language plpgsql
security definer
as $$
declare
  c_kept constant bigint := 2592000000000;
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_number('fq_mark_idle_channels has after'::text, p_after::bigint, 0::bigint, null::bigint);
  perform fairqueue.fq_check_number(
    'fq_mark_idle_channels has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint
  );
  select max(r.id) into last_id
  from (
    select c.id
    from fairqueue.fq_channel c
    where c.id > p_after
    order by c.id
    limit p_limit
  ) r;
  with idle as materialized (
    select s.ctid as row
    from fairqueue.fq_channel c
    left join fairqueue.fq_queue q on q.name = c.queue
    cross join lateral fairqueue.fq_newest_place(c.id) newest
    join fairqueue.fq_channel_state s
      on s.ctid = newest.state_row
      and s.row_version is not distinct from newest.row_version
    where c.id > p_after
      and c.id <= last_id
      and greatest(s.used_at, s.last_dequeue_at) < v_now - case
        when q.name is null then c_kept
        else q.forget_channels_after
      end
      and greatest(s.used_at, s.last_dequeue_at) > 0
      and s.head_message_id is null
      and s.current_concurrency = 0
      and s.backlog = 0
      and s.paused_at is null
      and not s.configured
      and s.forget_xid is null
    for no key update of s skip locked
  )
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    forget_xid = pg_current_xact_id()
  from idle i
  where s.ctid = i.row;
  get diagnostics marked = row_count;
end
$$;
