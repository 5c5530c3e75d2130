-- fq_take_more: lease the messages that follow in the channel of a leased message to its consumer, for handlers of
-- batches: up to p_limit of the same kind, which cost at most p_max_cost together with it, with at most p_max_bytes of
-- contents and headers (null: any number). p_message_id, p_lease_id, p_deliveries: the token of the message.
-- Returns rows as fq_dequeue, without the row about the call. The transaction is as there.
-- Guarantees: they are the first ones of the channel without an ordering key, or, if the message has one, the next ones
-- of that, in order, up to one of another kind, one that was tried before, or one that somebody has locked; none while
-- a dead letter holds the key. Limits, rates and costs count each of them, as in fq_dequeue; only the order between
-- channels does not hold them back: the channel pays for them with its next turns. None is taken if the message itself
-- was tried before, if its token is not the newest one or its lease has ended, or if another call has the channel
-- locked or, in a queue with a limit, attends.
-- Locks: as fq_dequeue: it waits for none. Index: fq_message_pkey, fq_channel_state_newest_ix, fq_message_ready_ix, and
-- those of its steps. Errors: as fq_dequeue.
create function fairqueue.fq_take_more(
  p_queue text, p_message_id bigint, p_lease_id bigint, p_deliveries integer, p_limit integer, p_max_cost bigint,
  p_max_bytes bigint
)
returns table (
  message_id bigint, row_id tid, channel_id bigint, channel text, kind text, content bytea, headers jsonb,
  ordering_key text, enqueued_at bigint, attempt integer, max_attempts integer, deliveries integer
)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_check_dequeue(p_queue, p_limit, 1::bigint, ''::text, p_max_bytes);
  v_first record;
  v_state record;
  l record;
  c record;
  v_is_changed boolean;
  v_room integer;
  v_rate_room bigint;
  v_estimate integer;
  v_got integer := 0;
begin
  select m.channel_id, m.kind, m.ordering_key, p_max_cost - coalesce(m.cost, 1) as max_cost into v_first
  from fairqueue.fq_message m
  where m.id = p_message_id
    and m.lease_id = p_lease_id
    and m.deliveries = p_deliveries
    and m.attempts = 1
    and (select n.queue from fairqueue.fq_channel n where n.id = m.channel_id) = p_queue;
  l := fairqueue.fq_look(p_queue, p_limit, v_now);
  if v_first is null or l.is_paused or (l.state).queue is null or l.epoch is null then
    return;
  end if;
  if l.is_limited then
    l := fairqueue.fq_attend(p_queue, p_limit, l, v_now);
    l := fairqueue.fq_queue_room(p_queue, l, v_now);
  end if;
  <<taking>>
  begin
    if coalesce(l.room, 0) = 0 or l.is_limited and l.dispatch_row is null then
      exit taking;
    end if;
    select s.ctid as row, num_nonnulls(s.max_concurrency, s.max_cost_out) > 0 as is_limited, s.* into v_state
    from fairqueue.fq_newest_place(v_first.channel_id::bigint) newest
    join fairqueue.fq_channel_state s
      on s.ctid = newest.state_row
      and s.row_version is not distinct from newest.row_version
    where s.head_message_id is not null
      and s.paused_at is null
    for no key update of s skip locked;
    -- As fq_lease_for, but no lease is made. The lease may have ended, and the message gone back, since v_now.
    perform
    from fairqueue.fq_lease e
    where e.id = p_lease_id
      and e.epoch = l.epoch
      and e.expires_at > fairqueue.fq_now()
    for key share skip locked;
    -- A message that names no cost counts as 1 against quotas here, but is charged what messages of its channel take.
    if not found or not l.is_limited and fairqueue.fq_is_limited(p_queue) or v_state.row is null
      or l.is_timed and (
        num_nonnulls(l.cost_left, l.rate_left, v_state.max_cost_out) > 0
        or v_state.rate_of = 'cost' and v_state.rate_interval > 0
      )
      or not exists (
        select
        from fairqueue.fq_message m
        where (m.id, m.lease_id, m.deliveries) = (p_message_id, p_lease_id, p_deliveries)
      )
    then
      exit taking;
    end if;
    if l.plans then
      select f.followed + f.deferred > 0 into v_is_changed
      from fairqueue.fq_follow_plans(p_queue, array[v_first.channel_id]::bigint[], false::boolean) f;
      if v_is_changed then
        exit taking;
      end if;
    end if;
    v_rate_room := fairqueue.fq_rate_room(
      v_now, v_state.rate_at::bigint, v_state.rate_interval::bigint, v_state.rate_burst::integer
    );
    v_room := greatest(0, least(l.room, v_state.max_concurrency - v_state.current_concurrency, v_rate_room));
    v_first.max_cost := least(
      v_first.max_cost, l.rate_left, l.cost_left, v_state.max_cost_out - v_state.current_cost,
      case when v_state.rate_of = 'cost' then v_rate_room end
    );
    v_estimate := fairqueue.fq_estimate(v_state.mean_cost::bigint, l.is_timed::boolean);
    c := fairqueue.fq_cut_alike(
      v_first.channel_id::bigint, v_first.ordering_key::text, v_first.kind::text, v_state.head_dequeue_at::bigint,
      v_state.head_message_id::bigint, v_room, v_first.max_cost::bigint, p_max_bytes, v_estimate, v_now
    );
    if c.rows is null then
      exit taking;
    end if;
    return query
    update fairqueue.fq_message m
    set lease_id = p_lease_id,
      attempts = m.attempts + 1,
      deliveries = m.deliveries + 1,
      slots = case when v_state.is_limited then 1 else 0 end + case when l.is_limited then 2 else 0 end,
      delivered_at = case when l.history then v_now end,
      charged = case when l.is_timed then coalesce(m.cost, v_estimate) end
    from unnest(c.rows) u(row)
    where m.ctid = u.row
    returning m.id, m.ctid, m.channel_id, (select n.name from fairqueue.fq_channel n where n.id = m.channel_id),
      m.kind, m.content, m.headers, m.ordering_key, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries;
    perform fairqueue.fq_charge(
      p_queue, array[v_state.row]::tid[], c.givers::integer[], c.gots::integer[], c.charges::bigint[],
      c.next_heads_at::bigint[], c.next_head_ids::bigint[], l.by_cost::boolean, v_now,
      l.state::fairqueue.fq_queue_state, (l.dispatch_row is not null)::boolean
    );
    l.spent := c.charges[1];
    v_got := cardinality(c.rows);
  end taking;
  -- What the call has heard must be noted also if it takes nothing: the signals are gone.
  if l.is_limited and l.dispatch_row is not null then
    perform
    from fairqueue.fq_report(p_queue, p_limit, l, v_got, 'cut'::text, v_now);
  end if;
end
$$;
