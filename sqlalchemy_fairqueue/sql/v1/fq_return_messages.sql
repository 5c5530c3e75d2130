-- fq_return_messages: make leased messages that the caller has locked ready again. Used by release, retry and reclaim.
-- Guarantees: a message without a delay stands where it stood in its channel; with one (microseconds) it is due that much later.
-- One signal a channel carries the least of them and the slots they free.
-- Locks: only rows that the caller holds. Index: none, rows by ctid. Errors: none.
create function fairqueue.fq_return_messages(
  p_queue text, p_ids bigint[], p_rows tid[], p_delays bigint[], p_errors text[], p_attempts_back integer
)
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
  with held as materialized (
    select m.ctid as row, m.id, m.slots, u.delay, u.error
    from unnest(p_ids, p_rows, p_delays, p_errors) u(id, row, delay, error)
    join fairqueue.fq_message m on m.ctid = u.row and m.id is not distinct from u.id
  ),
  returned as (
    update fairqueue.fq_message m
    set lease_id = null,
      slots = 0,
      attempts = m.attempts - p_attempts_back,
      dequeue_at = case when h.delay > 0 then fairqueue.fq_now() + h.delay else m.dequeue_at end,
      error = coalesce(h.error, m.error)
    from held h
    where m.ctid = h.row
      and m.id is not distinct from h.id
    returning m.channel_id, m.dequeue_at, m.id, h.slots
  ),
  freed as (
    select r.channel_id, sum(r.slots) as slots
    from returned r
    group by r.channel_id
  )
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, freed)
  select distinct on (r.channel_id) p_queue, r.channel_id, r.dequeue_at, r.id, f.slots
  from returned r
  join freed f on f.channel_id = r.channel_id
  order by r.channel_id, r.dequeue_at, r.id;
end
$$;
