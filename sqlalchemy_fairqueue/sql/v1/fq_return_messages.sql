-- fq_return_messages: give leased messages back that the caller has locked, for fq_end_attempts and fq_reclaim.
-- p_attempts_back: attempts that do not count.
-- Guarantees: a message without a delay keeps its place in the channel; with one (microseconds) it is due that much
-- later, and promoted then if it has a priority. A message that was cancelled while it was leased is deleted instead.
-- One signal a channel names the first of its messages, how many there are, and the slots that they free. If the queue
-- recorded its history at the delivery, the attempt is appended as p_outcome, or as 'cancelled'. If a message of the
-- same ordering key is held back, a signal of the key lets it be looked at again, see fq_tell_ordering.
-- Locks: only rows that the caller holds. Index: fq_message_held_ix; rows by ctid. Errors: none.
create function fairqueue.fq_return_messages(
  p_queue text, p_ids bigint[], p_rows tid[], p_delays bigint[], p_errors text[], p_attempts_back integer,
  p_outcome text default 'released'
)
returns void
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_attempts bigint[];
  v_kinds text[];
  v_errors text[];
  v_cancelled boolean[];
  v_ordered bigint[];
  v_ordering_keys text[];
begin
  if p_ids is null then
    return;
  end if;
  with held as materialized (
    select m.ctid as row, m.id, m.channel_id, m.slots, fairqueue.fq_charged(m.charged, m.cost::integer) as cost,
      m.cancelled, m.kind, m.ordering_key, u.delay, u.error,
      fairqueue.fq_attempt(m.*) as attempt
    from unnest(p_ids, p_rows, p_delays, p_errors) u(id, row, delay, error)
    join fairqueue.fq_message m on m.ctid = u.row and m.id is not distinct from u.id
  ),
  gone as (
    delete from fairqueue.fq_message m
    using held h
    where m.ctid = h.row
      and m.id is not distinct from h.id
      and h.cancelled
    returning m.channel_id, h.slots, h.cost
  ),
  returned as (
    update fairqueue.fq_message m
    set lease_id = null,
      slots = 0,
      attempts = m.attempts - p_attempts_back,
      dequeue_at = case when h.delay > 0 then v_now + h.delay else m.dequeue_at end,
      delivered_at = null,
      returned_at = v_now,
      error = coalesce(h.error, m.error)
    from held h
    where m.ctid = h.row
      and m.id is not distinct from h.id
      and not h.cancelled
    returning m.channel_id, m.dequeue_at, m.id, h.slots, h.cost,
      h.delay > 0 and m.priority is not null as is_promotable
  ),
  promotions as (
    insert into fairqueue.fq_promotion (queue, due_at, message_id)
    select p_queue, r.dequeue_at, r.id
    from returned r
    where r.is_promotable
  ),
  told as (
    select a.channel_id, count(a.id) as added, sum(a.slots & 1) as freed, sum(a.slots >> 1) as queue_freed,
      sum((a.slots & 1) * a.cost) as freed_cost, sum((a.slots >> 1) * a.cost) as queue_freed_cost,
      min(array[a.dequeue_at, a.id]) filter (where a.id is not null) as least
    from (
      select r.channel_id, r.dequeue_at, r.id, r.slots, r.cost
      from returned r
      union all
      select g.channel_id, null, null, g.slots, g.cost
      from gone g
    ) a
    group by a.channel_id
  ),
  signalled as (
    insert into fairqueue.fq_signal (
      queue, channel_id, dequeue_at, message_id, freed, queue_freed, freed_cost, queue_freed_cost, added, bounded
    )
    select p_queue, t.channel_id, t.least[1], t.least[2], t.freed, t.queue_freed, t.freed_cost, t.queue_freed_cost,
      t.added, t.added > 0
    from told t
    where t.added > 0
      or t.freed > 0
      or t.queue_freed > 0
  )
  select
    array_agg(h.attempt) filter (where h.attempt is not null),
    array_agg(h.kind) filter (where h.attempt is not null),
    array_agg(h.error) filter (where h.attempt is not null),
    array_agg(h.cancelled) filter (where h.attempt is not null),
    array_agg(h.channel_id) filter (where h.ordering_key is not null and not h.cancelled),
    array_agg(h.ordering_key) filter (where h.ordering_key is not null and not h.cancelled)
  into v_attempts, v_kinds, v_errors, v_cancelled, v_ordered, v_ordering_keys
  from held h;
  if v_ordered is not null then
    perform fairqueue.fq_tell_ordering(p_queue, v_ordered, v_ordering_keys);
  end if;
  if v_attempts is not null then
    perform fairqueue.fq_record_attempts(p_queue, v_attempts, v_kinds, v_errors, p_outcome, v_cancelled, v_now);
  end if;
end
$$;
