-- fq_results: what became of messages of a queue, one row each. state: 'completed': content is what the handler
-- returned (null: None); 'unkept': completed, and reason says why there is no content; 'cancelled'; 'expired': the time
-- of its result is over; 'pending': it has not ended; 'failed': it is a dead letter, with reason and error; 'gone':
-- nothing is kept of a message with this id, of whatever queue; 'unknown': no message of this queue ever had the id.
-- Guarantees: one snapshot. Times are microseconds since the epoch.
-- Locks: none. Index: fq_result_pkey, fq_message_pkey, fq_dead_letter_pkey. Errors: QF007.
create function fairqueue.fq_results(p_queue text, p_ids bigint[])
returns table (
  message_id bigint, state text, channel text, kind text, content bytea, reason text, error text, finished_at bigint,
  expires_at bigint
)
language plpgsql
stable
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_last bigint := (
    select coalesce(
      pg_sequence_last_value(pg_get_serial_sequence(t.typnamespace::regnamespace || '.fq_message', 'id')), 0
    )
    from pg_type t
    where t.oid = pg_typeof(null::fairqueue.fq_message)
  );
begin
  return query
  select u.id,
    coalesce(o.state, case when f.queue is null and u.id between 1 and v_last then 'gone' else 'unknown' end),
    o.channel, o.kind, o.content, o.reason, o.error, o.finished_at, o.expires_at
  from unnest(p_ids) with ordinality u(id, ord)
  left join lateral (
    select x.*
    from fairqueue.fq_result x
    where x.message_id = u.id
    limit 1
  ) k on true
  left join lateral (
    select c.queue, c.name as channel, x.kind
    from fairqueue.fq_message x
    join fairqueue.fq_channel c on c.id = x.channel_id
    where x.id = u.id
    limit 1
  ) m on true
  left join lateral (
    select x.queue, c.name as channel, x.kind, x.reason, x.error, x.died_at
    from fairqueue.fq_dead_letter x
    left join fairqueue.fq_channel c on c.id = x.channel_id
    where x.message_id = u.id
    limit 1
  ) d on true
  cross join lateral (select coalesce(k.queue, d.queue, m.queue) as queue) f
  left join lateral (
    select coalesce(k.channel, d.channel, m.channel) as channel, coalesce(k.kind, d.kind, m.kind) as kind,
      case
        when k.expires_at <= v_now then 'expired'
        when k.outcome is not null then k.outcome
        when m.kind is not null then 'pending'
        when d.reason is not null then 'failed'
      end as state,
      case when k.expires_at > v_now then k.content end as content, coalesce(k.problem, d.reason) as reason,
      d.error, coalesce(k.finished_at, d.died_at) as finished_at, k.expires_at
  ) o on f.queue = p_queue
  -- Refuses the row, unless it only says that another queue has the message.
  cross join lateral fairqueue.fq_check_grant(
    array['producer', 'operator']::text[], p_queue,
    (case when o.channel is null then '{}' else array[o.channel] end)::text[]
  )
  order by u.ord;
end
$$;
