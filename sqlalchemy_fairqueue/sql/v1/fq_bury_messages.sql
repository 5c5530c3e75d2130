-- fq_bury_messages: move messages that the caller has locked, whole, to the dead letters: for fq_end_attempts and
-- fq_reclaim. Returns the ids of those that have a dead letter now. If the queue follows the kind K of a message
-- (on_dead_kinds), a message of kind 'on_dead:K' is added to its channel, whatever max_backlog says, whose payload
-- describes the dead letter as JSON.
-- Guarantees: a dead letter is written in the statement that deletes its message; a signal frees the slots. A message
-- that was cancelled while it was leased is deleted without a dead letter, so that no redrive delivers it again. If the
-- queue recorded its history at the delivery, the attempt is appended as 'buried' (error: the error, else the reason)
-- or 'cancelled'.
-- Locks: only rows that the caller holds. Index: fq_group_note_pkey; rows by ctid. Errors: none.
create function fairqueue.fq_bury_messages(
  p_queue text, p_ids bigint[], p_rows tid[], p_reasons text[], p_errors text[]
)
returns bigint[]
language plpgsql
as $$
declare
  v_dead bigint[];
  v_attempts bigint[];
  v_kinds text[];
  v_errors text[];
  v_cancelled boolean[];
  v_members bigint[];
  v_groups uuid[];
  v_ordered bigint[];
  v_ordering_keys text[];
begin
  if p_ids is null then
    return null;
  end if;
  with buried as (
    delete from fairqueue.fq_message m
    using unnest(p_ids, p_rows, p_reasons, p_errors) u(id, row, reason, error)
    where m.ctid = u.row
      and m.id is not distinct from u.id
    returning m.id, m.channel_id, m.kind, m.content, m.headers, m.key, m.priority, m.cost, m.ordering_key, m.enqueued_at,
      m.attempts, m.max_attempts, m.deliveries, m.slots, fairqueue.fq_charged(m.charged, m.cost::integer) as held,
      m.cancelled, u.reason, coalesce(u.error, m.error) as error,
      case when m.lease_id is not null and not m.cancelled then m.group_id end as group_id,
      fairqueue.fq_attempt(m.*) as attempt,
      coalesce(u.error, u.reason) as attempt_error
  ),
  letters as (
    insert into fairqueue.fq_dead_letter (
      message_id, queue, channel_id, kind, content, headers, key, priority, cost, ordering_key, enqueued_at,
      attempts, max_attempts, deliveries, reason, error, died_at, holds
    )
    select b.id, p_queue, b.channel_id, b.kind, b.content, b.headers, b.key, b.priority, b.cost,
      b.ordering_key, b.enqueued_at, b.attempts, b.max_attempts, b.deliveries, b.reason, b.error, fairqueue.fq_now(),
      b.ordering_key is not null and (select q.on_dead = 'hold' from fairqueue.fq_queue q where q.name = p_queue) is true
    from buried b
    where not b.cancelled
  ),
  followed as (
    insert into fairqueue.fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)
    select b.channel_id, 'on_dead:' || b.kind,
      convert_to(
        jsonb_build_object(
          'message_id', b.id, 'channel', (select c.name from fairqueue.fq_channel c where c.id = b.channel_id),
          'kind', b.kind, 'reason', b.reason, 'error', b.error, 'attempts', b.attempts, 'key', b.key, 'ordering_key', b.ordering_key
        )::text,
        'UTF8'
      ),
      n.at, n.at, 20
    from buried b
    join fairqueue.fq_queue q on q.name = p_queue and b.kind = any (q.on_dead_kinds)
    cross join fairqueue.fq_now() n(at)
    where not b.cancelled
    order by b.id
    returning id, channel_id, dequeue_at
  ),
  signalled as (
    insert into fairqueue.fq_signal (
      queue, channel_id, freed, queue_freed, freed_cost, queue_freed_cost, added, bounded, dequeue_at, message_id
    )
    select p_queue, b.channel_id, sum(b.slots & 1), sum(b.slots >> 1), sum((b.slots & 1) * b.held),
      sum((b.slots >> 1) * b.held), 0, false, null, null
    from buried b
    where b.slots > 0
    group by b.channel_id
    union all
    select p_queue, f.channel_id, 0, 0, null, null, 1, true, f.dequeue_at, f.id
    from followed f
  )
  select
    array_agg(b.id) filter (where not b.cancelled),
    array_agg(b.attempt) filter (where b.attempt is not null),
    array_agg(b.kind) filter (where b.attempt is not null),
    array_agg(b.attempt_error) filter (where b.attempt is not null),
    array_agg(b.cancelled) filter (where b.attempt is not null),
    array_agg(b.id) filter (where b.group_id is not null),
    array_agg(b.group_id) filter (where b.group_id is not null),
    array_agg(b.channel_id) filter (where b.ordering_key is not null),
    array_agg(b.ordering_key) filter (where b.ordering_key is not null)
  into v_dead, v_attempts, v_kinds, v_errors, v_cancelled, v_members, v_groups, v_ordered, v_ordering_keys
  from buried b;
  -- fq_end_message has noted the undelivered ones.
  update fairqueue.fq_group_note n
  set cancelled = 0,
    failed = 1
  where n.xid = pg_current_xact_id_if_assigned()
    and n.id = any (v_dead);
  if v_members is not null then
    perform fairqueue.fq_end_members(v_members::bigint[], v_groups::uuid[], true::boolean);
  end if;
  if v_ordered is not null then
    perform fairqueue.fq_tell_ordering(p_queue, v_ordered, v_ordering_keys);
  end if;
  if v_attempts is not null then
    perform fairqueue.fq_record_attempts(
      p_queue, v_attempts, v_kinds, v_errors, 'buried'::text, v_cancelled, null::bigint
    );
  end if;
  return v_dead;
end
$$;
