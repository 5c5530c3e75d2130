-- fq_consumers: up to p_limit consumers of a queue with a lease that has not expired, those with the most messages
-- first.
-- Guarantees: one snapshot, one row a consumer. leased: its messages. expires_at: of its last lease; cancelled,
-- cancelled_at: how many of its messages were cancelled, and when the first was; waiting_until: it waits for work;
-- stop_requested_at, stop_requested_by: the last request within an hour; version, concurrency: of a worker that has
-- told them; handlers: p_handlers of its messages, those that it has had longest (without a history, those of the least
-- ids), as a JSON array.
-- Cost: the leased messages of the queue. Locks: none. Index: fq_lease_expires_ix, fq_message_lease_ix,
-- fq_channel_pkey, fq_stop_request_pkey. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_consumers(
  p_queue text, p_limit integer default 100, p_handlers integer default 1
)
returns table (
  consumer text, leased bigint, expires_at bigint, waiting_until bigint, stop_requested_at bigint,
  stop_requested_by text, cancelled bigint, cancelled_at bigint, version text, concurrency integer, handlers text
)
language plpgsql
stable
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_consumers has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_consumers has handlers'::text, p_handlers::bigint, 1::bigint, null::bigint);
  return query
  with alive as materialized (
    select e.consumer, sum(h.messages)::bigint as leased, max(e.expires_at) as expires_at,
      max(e.waiting_until) filter (where e.waiting_until > v_now) as waiting_until,
      sum(h.cancelled)::bigint as cancelled, min(h.cancelled_at) as cancelled_at, max(e.version) as version,
      max(e.concurrency) as concurrency
    from fairqueue.fq_lease e
    cross join lateral (
      select count(*) as messages, count(*) filter (where m.cancelled) as cancelled,
        min(m.cancelled_at) as cancelled_at
      from fairqueue.fq_message m
      where m.lease_id = e.id
    ) h
    where e.queue = p_queue
      and e.expires_at > v_now
    group by e.consumer
    order by 2 desc, e.consumer
    limit p_limit
  )
  select a.consumer, a.leased, a.expires_at, a.waiting_until, r.requested_at, r.requested_by, a.cancelled,
    a.cancelled_at, a.version, a.concurrency, o.handlers
  from alive a
  left join fairqueue.fq_stop_request r on r.queue = p_queue
    and r.consumer = a.consumer
    and r.requested_at > v_now - 3600000000
  cross join lateral (
    select jsonb_agg(
        jsonb_build_object(
          'message_id', h.id, 'kind', h.kind, 'channel', k.name, 'delivered_at', h.delivered_at,
          'cancelled_at', h.cancelled_at
        )
        order by h.delivered_at, h.id
      )::text as handlers
    from (
      select x.id, x.kind, x.channel_id, x.delivered_at, x.cancelled_at
      from fairqueue.fq_lease e
      join fairqueue.fq_message x on x.lease_id = e.id
      where e.queue = p_queue
        and e.expires_at > v_now
        and e.consumer = a.consumer
      order by x.delivered_at, x.id
      limit p_handlers
    ) h
    join fairqueue.fq_channel k on k.id = h.channel_id
  ) o
  order by a.leased desc, a.consumer;
end
$$;
