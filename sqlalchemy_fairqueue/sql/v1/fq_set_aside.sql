-- fq_set_aside: find what makes a dequeue of a queue fail by an error about data, and take it out of its way, before
-- the dequeue is tried again. With p_ids: messages that the caller holds under the lease p_lease_id and cannot read.
-- Guarantees: a row for each. A message that cannot be delivered becomes a dead letter ('dead') or, if no letter can
-- hold it, stands in the quarantine ('quarantined'); the state of a channel that cannot be updated, or that a signal
-- cannot be applied to, is made anew from its messages ('mended', message_id null), and so are the states of the
-- queue's limits (channel_id null too). No row: the error is not about a row. All messages that a dequeue of p_limit
-- messages can take are tried and undone, each by itself, and the first 1,000 expired leases, promotions, signals and
-- changed channels of plans are worked off as a dequeue does.
-- Locks: as fq_reclaim, fq_promote, fq_spread_plans and fq_hear, messages and state rows, all skip locked: it waits for
-- none. Index: as fq_dequeue, fq_hear, fq_reclaim and fq_promote. Errors: QF001 bad argument; QF007.
create function fairqueue.fq_set_aside(
  p_queue text, p_limit integer, p_lease_id bigint default null, p_ids bigint[] default null,
  p_reason text default null
)
returns table (message_id bigint, channel_id bigint, outcome text, reason text)
language plpgsql
volatile
security definer
as $$
#variable_conflict use_column
declare
  v_now bigint := fairqueue.fq_now();
  v_channels bigint[];
  v_found boolean := false;
  v_id bigint;
  v_row tid;
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  if p_queue is null or p_limit is null or p_limit not between 1 and 100000 then
    raise exception 'fq_set_aside has queue %, limit %', left(p_queue, 80), p_limit
      using errcode = 'QF001', hint = 'name a queue and the limit of the dequeue that failed, 1 to 100000';
  end if;
  if p_ids is not null then
    reason := format('set aside, for its consumer cannot read it: %s', left(p_reason, 1000));
    for message_id, channel_id, v_row in
      select m.id, m.channel_id, m.ctid
      from unnest(p_ids) u(id)
      join fairqueue.fq_message m on m.id = u.id
      where m.lease_id = p_lease_id
        and exists (select from fairqueue.fq_channel c where c.id = m.channel_id and c.queue = p_queue)
      for update of m skip locked
    loop
      outcome := fairqueue.fq_quarantine(p_queue, message_id::bigint, v_row, reason::text);
      return next;
    end loop;
    return;
  end if;

  -- What this frees decides what a dequeue reaches. An error of a plan is the next dequeue's, if nothing is found.
  return query
  select d.message_id, d.channel_id, d.outcome, d.reason
  from fairqueue.fq_set_aside_due(p_queue, v_now) d;
  v_found := found;
  begin
    perform fairqueue.fq_spread_plans(p_queue, 1000::integer);
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;

  -- Signals, then the limits of the queue.
  return query
  select null::bigint, f.channel_id, 'mended', format('a signal cannot be applied: %s', left(f.reason, 1000))
  from fairqueue.fq_repair_signalled(p_queue) f
  union all
  select null::bigint, null::bigint, 'mended',
    format('the states of its limits cannot be updated: %s', left(f.reason, 1000))
  from fairqueue.fq_repair_limits(p_queue) f(reason)
  where f.reason is not null;
  v_found := v_found or found;

  -- The states of ready channels. (Nothing is computed of a row before it is alone.)
  v_channels := array(
    select s.channel_id
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.next_dequeue_at is not null
      and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
      and s.next_dequeue_at <= v_now
    order by s.queue, s.next_dequeue_at, s.channel_id
    limit greatest(p_limit, 100)
  );
  outcome := 'mended';
  foreach v_id in array v_channels loop
    -- Who changes a channel holds its row until the end of a transaction; a dequeue passes it by as well.
    perform
    from fairqueue.fq_channel_state s
    where s.channel_id = v_id
    for no key update skip locked;
    continue when not found;
    reason := fairqueue.fq_test_channel(v_id, v_now);
    if reason is not null and fairqueue.fq_repair_channel(p_queue, v_id) then
      channel_id := v_id;
      reason := format('its state cannot be updated: %s', left(reason, 1000));
      v_found := true;
      return next;
    end if;
  end loop;

  -- The messages that come first in each of them, and one more: a dequeue looks at the size of the next one too. First
  -- as many as a dequeue takes, and some more, in turn. If all of these are good, the limits and weights of channels
  -- let it go deeper into one of them: all that it can reach, up to the first bad one.
  for v_pass in 1..2 loop
    for v_row, v_id, channel_id in
      select m.row, m.id, m.channel_id
      from unnest(v_channels) with ordinality u(id, ord)
      cross join lateral (
        select f.*, row_number() over (order by f.dequeue_at, f.id) as rank
        from (
          select x.ctid as row, x.id, x.channel_id, x.dequeue_at
          from fairqueue.fq_message x
          where x.channel_id = u.id
            and x.lease_id is null
            and x.dequeue_at <= v_now
          order by x.channel_id, x.dequeue_at, x.id
          limit p_limit + 1
        ) f
      ) m
      order by m.rank, u.ord
      limit case when v_pass = 1 then 2 * p_limit + cardinality(v_channels) end
    loop
      perform
      from fairqueue.fq_message x
      where x.ctid = v_row
        and x.id is not distinct from v_id
        and num_nulls(x.lease_id) = 1
      for update skip locked;
      continue when not found;
      reason := fairqueue.fq_test_message(v_id, v_row);
      if reason is not null then
        v_found := true;
        message_id := v_id;
        reason := format('set aside, for it cannot be delivered: %s', left(reason, 1000));
        outcome := fairqueue.fq_quarantine(p_queue, v_id, v_row, reason::text);
        return next;
        exit when v_pass = 2;
      end if;
    end loop;
    exit when v_found;
  end loop;
end
$$;
