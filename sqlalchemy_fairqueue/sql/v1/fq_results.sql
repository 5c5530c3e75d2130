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
  v_bound boolean := not pg_has_role(fairqueue.fq_caller(), current_user, 'usage')
    and exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  v_last bigint;
  v_queue text;
begin
  for message_id, v_queue, channel, kind, state, content, reason, error, finished_at, expires_at in
    select u.id, coalesce(k.queue, d.queue, m.queue), coalesce(k.channel, d.channel, m.channel),
      coalesce(k.kind, d.kind, m.kind),
      case
        when k.expires_at <= v_now then 'expired'
        when k.outcome is not null then k.outcome
        when m.kind is not null then 'pending'
        when d.reason is not null then 'failed'
      end,
      case when k.expires_at > v_now then k.content end, coalesce(k.problem, d.reason), d.error,
      coalesce(k.finished_at, d.died_at), k.expires_at
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
    order by u.ord
  loop
    if v_bound and (v_queue = p_queue) is not false then
      perform fairqueue.fq_check_grant(
        array['producer', 'operator']::text[], p_queue,
        (case when channel is null then '{}' else array[channel] end)::text[]
      );
    end if;
    if v_queue is null and v_last is null then
      select coalesce(
        pg_sequence_last_value(pg_get_serial_sequence(t.typnamespace::regnamespace || '.fq_message', 'id')), 0
      )
      into v_last
      from pg_type t
      where t.oid = pg_typeof(null::fairqueue.fq_message);
    end if;
    if (v_queue = p_queue) is not true then
      state := case when v_queue is null and message_id between 1 and v_last then 'gone' else 'unknown' end;
      select null, null, null, null, null, null, null
      into channel, kind, content, reason, error, finished_at, expires_at;
    end if;
    return next;
  end loop;
end
$$;
