-- fq_redrive: put dead letters back into their channels, in the caller's transaction: those that fq_lock_dead_letters
-- finds. Returns each: 'redriven'; 'duplicate': another message has its key, so it stays dead; 'missing': one of p_ids
-- is no dead letter of the queue, or does not fit. p_notify: wake waiting consumers (not in a two-phase transaction).
-- Guarantees: the same message with the same id and priority, due now: without a priority the oldest death first, and
-- last those whose key another message has. Attempts count anew; deliveries go on counting, so that no token comes
-- twice. max_backlog does not count.
-- Locks: as fq_lock_dead_letters; then keys in the order (channel, key), as in fq_enqueue. Index: those of
-- fq_lock_dead_letters, fq_channel_pkey. Errors: QF001 bad limit; 40001; QF007.
create function fairqueue.fq_redrive(
  p_queue text, p_ids bigint[] default null, p_channel text default null, p_kind text default null,
  p_limit integer default 1000, p_notify boolean default true, p_key text default null,
  p_ordering_key text default null
)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_ids bigint[];
  v_back bigint[];
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_redrive has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  v_ids := fairqueue.fq_lock_dead_letters(
    p_queue, p_ids, p_channel, p_kind, p_key, p_ordering_key, null::bigint, p_limit
  );
  with back as (
    insert into fairqueue.fq_message (
      id, channel_id, kind, content, headers, dequeue_at, enqueued_at, key, priority, cost, ordering_key,
      max_attempts, deliveries, returned_at, error
    )
    overriding system value
    select d.message_id, d.channel_id, d.kind, d.content, d.headers,
      p.dequeue_at,
      d.enqueued_at, d.key, d.priority, d.cost, d.ordering_key, d.max_attempts, d.deliveries, v_now, d.error
    from unnest(v_ids) with ordinality u(id, ord)
    cross join lateral (
      select x.*
      from fairqueue.fq_dead_letter x
      where x.message_id = u.id
      limit 1
    ) d
    cross join lateral fairqueue.fq_position_in(
      d.channel_id, (v_now - cardinality(v_ids) + u.ord)::bigint, d.priority
    ) p
    order by (select c.name from fairqueue.fq_channel c where c.id = d.channel_id) collate "C", d.key collate "C" nulls first, u.ord
    on conflict do nothing
    returning id, channel_id, dequeue_at
  ),
  signalled as (
    insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, bounded)
    select p_queue, t.channel_id, t.least[1], t.least[2], t.added, true
    from (
      select b.channel_id, count(*) as added, min(array[b.dequeue_at, b.id]) as least
      from back b
      group by b.channel_id
    ) t
  )
  select array_agg(b.id) into v_back
  from back b;

  delete from fairqueue.fq_dead_letter d
  where d.message_id = any (v_back);
  if p_notify and v_back is not null then
    perform fairqueue.fq_wake(p_queue);
  end if;

  return query
  select b.id, 'redriven'
  from unnest(v_back) b(id)
  union all
  select l.id, 'duplicate'
  from (select unnest(v_ids) as id except select unnest(v_back)) l
  union all
  select l.id, 'missing'
  from (select unnest(p_ids) as id except select unnest(v_ids)) l
  where l.id is not null;
end
$$;
