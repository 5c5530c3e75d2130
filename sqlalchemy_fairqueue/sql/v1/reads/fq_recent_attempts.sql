-- fq_recent_attempts: a page of up to p_limit attempts at messages of a queue that have ended, the last recorded first,
-- with their places in the history. p_channel, p_kind, p_outcome: only such (null restricts nothing). p_xid, p_id:
-- recorded_xid and history_id of the last row of the page before. p_message_id: only those at this message, the last
-- that ended first, without pages. error: its first p_chars characters.
-- Guarantees: one snapshot. If there may be more, the last row has no message_id, and says where to go on. At most
-- p_scan attempts of all queues are looked at, so a page may have fewer than p_limit, or none, and still not be the
-- last.
-- Cost: an index probe a day that is kept, and the attempts that are looked at. Locks: none.
-- Index: fq_history_recorded_ix, fq_history_message_ix. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_recent_attempts(
  p_queue text, p_message_id bigint, p_channel text, p_kind text, p_outcome text, p_xid bigint, p_id bigint,
  p_limit integer, p_scan integer, p_chars integer
)
returns table (
  message_id bigint, kind text, attempt integer, channel text, consumer text, enqueued_at bigint, ready_at bigint,
  started_at bigint, finished_at bigint, outcome text, error text, recorded_xid bigint, history_id bigint
)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_found integer := 0;
  v_scanned integer := 0;
  v_queue text;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_recent_attempts has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_recent_attempts has scan'::text, p_scan::bigint, 1::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_recent_attempts has chars'::text, p_chars::bigint, 0::bigint, null::bigint);
  for v_queue, message_id, kind, attempt, channel, consumer, enqueued_at, ready_at, started_at, finished_at, outcome,
    error, recorded_xid, history_id
  in
    select h.queue, h.message_id, h.kind, h.attempt, h.channel, h.consumer, h.enqueued_at, h.ready_at, h.started_at,
      h.finished_at, h.outcome, left(h.error, p_chars), h.recorded_xid::text::bigint, h.id
    from (
      (
        select x.*
        from fairqueue.fq_history x
        where p_message_id is null
          and (p_id is null or (x.recorded_xid, x.id) < (p_xid::text::xid8, p_id))
        order by x.recorded_xid desc, x.id desc
        limit p_scan
      )
      union all
      (
        select x.*
        from fairqueue.fq_history x
        where x.message_id = p_message_id
        order by x.finished_at desc, x.id desc
        limit p_scan
      )
    ) h
  loop
    v_scanned := v_scanned + 1;
    if v_queue = p_queue
      and (p_channel is null or channel = p_channel)
      and (p_kind is null or kind = p_kind)
      and (p_outcome is null or outcome = p_outcome)
    then
      v_found := v_found + 1;
      return next;
      exit when v_found = p_limit;
    end if;
  end loop;
  if v_found = p_limit or v_scanned = p_scan then
    message_id := null;
    return next;
  end if;
end
$$;
