-- fq_message_attempts: up to p_limit attempts at a message of a queue that have ended, from the history, the newest
-- first. No row: there was none, or the queue did not record it, or its day was pruned. error: its first p_chars
-- characters.
-- Guarantees: one snapshot.
-- Cost: an index probe a day that is kept, and the rows. Locks: none. Index: fq_history_message_ix.
-- Errors: QF001 bad limit; QF007.
create function fairqueue.fq_message_attempts(p_queue text, p_message_id bigint, p_limit integer, p_chars integer)
returns table (
  message_id bigint, kind text, attempt integer, channel text, consumer text, enqueued_at bigint, ready_at bigint,
  started_at bigint, finished_at bigint, outcome text, error text
)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_message_attempts has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_message_attempts has chars'::text, p_chars::bigint, 0::bigint, null::bigint);
  return query
  select h.message_id, h.kind, h.attempt, h.channel, h.consumer, h.enqueued_at, h.ready_at, h.started_at,
    h.finished_at, h.outcome, left(h.error, p_chars)
  from fairqueue.fq_history h
  where h.message_id = p_message_id
    and h.queue = p_queue
  order by h.finished_at desc, h.id desc
  limit p_limit;
end
$$;
