-- fq_bury_messages: move leased messages that the caller has locked to the dead letters, whole. Used by bury, retry and reclaim.
-- Guarantees: the letter and the deletion are one; the slots they held are freed by a signal.
-- Locks: only rows that the caller holds. Index: none, rows by ctid. Errors: none.
create function fairqueue.fq_bury_messages(p_queue text, p_ids bigint[], p_rows tid[], p_reasons text[], p_errors text[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
begin
  with buried as (
    delete from fairqueue.fq_message m
    using unnest(p_ids, p_rows, p_reasons, p_errors) u(id, row, reason, error)
    where m.ctid = u.row
      and m.id is not distinct from u.id
    returning m.id, m.channel_id, m.kind, m.content, m.headers, m.dedupe_key, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries, m.slots,
      u.reason, coalesce(u.error, m.error) as error
  ),
  letters as (
    insert into fairqueue.fq_dead_letter (
      message_id, queue, channel_id, kind, content, headers, dedupe_key, enqueued_at, attempts, max_attempts, deliveries, reason, error, died_at
    )
    select b.id, p_queue, b.channel_id, b.kind, b.content, b.headers, b.dedupe_key, b.enqueued_at, b.attempts, b.max_attempts, b.deliveries,
      b.reason, b.error, fairqueue.fq_now()
    from buried b
  )
  insert into fairqueue.fq_signal (queue, channel_id, freed)
  select p_queue, b.channel_id, sum(b.slots)
  from buried b
  where b.slots > 0
  group by b.channel_id;
end
$$;
