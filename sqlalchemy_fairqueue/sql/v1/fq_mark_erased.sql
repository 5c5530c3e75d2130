-- fq_mark_erased: mark a channel of which fq_erase_channel has left nothing over for fq_forget_channels.
-- Guarantees: unheard signals would keep the channel from being forgotten where no consumer hears them, so those that
-- free no slots of the queue are applied here. A message that came since has its signal still. The caller has the state
-- row locked.
-- Locks: signals; waits for who hears them. Index: fq_signal_pkey, fq_message_ready_ix. Errors: 40001.
create function fairqueue.fq_mark_erased(p_queue text, p_channel_id bigint)
returns void
language plpgsql
as $$
begin
  with heard as (
    delete from fairqueue.fq_signal g
    where g.queue = p_queue
      and g.channel_id = p_channel_id
      and g.queue_freed = 0
      and not exists (
        select
        from fairqueue.fq_message m
        where m.channel_id = p_channel_id
          and m.lease_id is null
      )
    returning g.added, g.freed, g.freed_cost
  )
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    backlog = s.backlog + t.added,
    current_concurrency = s.current_concurrency - t.freed,
    current_cost = s.current_cost - t.freed_cost,
    (head_dequeue_at, head_message_id) = (
      select x.dequeue_at, x.id
      from fairqueue.fq_message x
      where x.channel_id = p_channel_id
        and x.lease_id is null
      order by x.channel_id, x.dequeue_at, x.id
      limit 1
    ),
    configured = false,
    paused_at = null,
    problem = null,
    forget_xid = pg_current_xact_id()
  from (
    select coalesce(sum(h.added), 0) as added, coalesce(sum(h.freed), 0) as freed,
      coalesce(sum(h.freed_cost), 0) as freed_cost
    from heard h
  ) t
  where s.channel_id = p_channel_id;
end
$$;
