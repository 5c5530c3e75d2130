-- fq_consumers: up to p_limit consumers of a queue with a lease that has not expired, those with the most messages
-- first.
-- Guarantees: one snapshot, one row a consumer. leased: its messages; message_id, kind and channel: of the one that it
-- has had longest (if the queue records no history, of the one with the least id); delivered_at: since when (null
-- without a history). expires_at: when its last lease expires unless it is extended; cancelled, cancelled_at: how many
-- of its messages were cancelled, and when the first of them was; waiting_until: until when it waits for work (null: it
-- does not); stop_requested_at, stop_requested_by: when and by whom a consumer of that name was last asked to stop,
-- within the last hour.
-- Cost: the leased messages of the queue. Locks: none. Index: fq_lease_expires_ix, fq_message_lease_ix,
-- fq_channel_pkey, fq_stop_request_pkey. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_consumers(p_queue text, p_limit integer default 100)
returns table (
  consumer text, leased bigint, delivered_at bigint, message_id bigint, kind text, channel text, expires_at bigint,
  waiting_until bigint, stop_requested_at bigint, stop_requested_by text, cancelled bigint, cancelled_at bigint
)
language plpgsql
stable
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  if p_limit is null or p_limit < 1 then
    raise exception 'fq_consumers has limit %', p_limit
      using errcode = 'QF001', hint = 'ask for 1 consumer or more';
  end if;
  return query
  with alive as materialized (
    select e.consumer, sum(h.messages)::bigint as leased, max(e.expires_at) as expires_at,
      max(e.waiting_until) filter (where e.waiting_until > v_now) as waiting_until,
      min(array[h.delivered_at, h.message_id]) as oldest, sum(h.cancelled)::bigint as cancelled,
      min(h.cancelled_at) as cancelled_at
    from fairqueue.fq_lease e
    cross join lateral (
      select count(*) as messages, min(m.delivered_at) as delivered_at,
        (min(array[m.delivered_at, m.id]))[2] as message_id,
        count(*) filter (where m.cancelled) as cancelled, min(m.cancelled_at) as cancelled_at
      from fairqueue.fq_message m
      where m.lease_id = e.id
    ) h
    where e.queue = p_queue
      and e.expires_at > v_now
    group by e.consumer
    order by 2 desc, e.consumer
    limit p_limit
  )
  select a.consumer, a.leased, a.oldest[1], a.oldest[2], m.kind || '', c.name, a.expires_at, a.waiting_until,
    r.requested_at, r.requested_by, a.cancelled, a.cancelled_at
  from alive a
  left join fairqueue.fq_message m on m.id = a.oldest[2]
  left join fairqueue.fq_channel c on c.id = m.channel_id
  left join fairqueue.fq_stop_request r on r.queue = p_queue
    and r.consumer = a.consumer
    and r.requested_at > v_now - 3600000000
  order by a.leased desc, a.consumer;
end
$$;
