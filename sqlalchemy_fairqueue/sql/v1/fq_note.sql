-- fq_note: write the dispatch row of a queue, which the caller has locked: place and contents as fq_attend gave them.
-- Guarantees: due_floor rises to the first channel that waits for a time, and at most to p_now: a call that lets a
-- channel wait without attending leaves a signal, by which the floor falls again.
-- Locks: only the row that the caller holds. Index: fq_channel_state_due_ix, fq_lease_expires_ix; the row by ctid.
-- Errors: none.
create function fairqueue.fq_note(p_row tid, p_state fairqueue.fq_queue_state, p_now bigint)
returns void
language plpgsql
as $$
begin
  update fairqueue.fq_queue_state s
  set row_version = s.row_version + 1,
    current_concurrency = p_state.current_concurrency,
    current_cost = p_state.current_cost,
    owed_cost = p_state.owed_cost,
    rate_at = p_state.rate_at,
    heard_below = p_state.heard_below,
    heard_open = p_state.heard_open,
    ready_floor = p_state.ready_floor,
    ready_channel = p_state.ready_channel,
    still_since = p_state.still_since,
    due_floor = least(
      p_now,
      (
        select w.due_at
        from fairqueue.fq_channel_state w
        where w.queue = p_state.queue
          and w.due_at >= p_state.due_floor
        order by w.queue, w.due_at
        limit 1
      )
    ),
    lease_floor = least(
      p_now - 10000000,
      (
        select e.expires_at
        from fairqueue.fq_lease e
        where e.queue = p_state.queue
          and e.expires_at >= s.lease_floor
        order by e.queue, e.expires_at
        limit 1
      )
    ),
    swept_at = case when s.swept_at between p_now - 100000 and p_now then s.swept_at else p_now end,
    held_since = p_state.held_since,
    noted_at = p_now
  where s.ctid = p_row;
end
$$;
