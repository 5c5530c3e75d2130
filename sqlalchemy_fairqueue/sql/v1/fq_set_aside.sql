-- fq_set_aside: find what makes a dequeue of a queue fail, and take it out of its way. To be called after a dequeue
-- failed by an error about data, and before it is tried again. With p_ids: the messages that the caller holds under the
-- lease p_lease_id and could not read.
-- Guarantees: returns what it did, one row each. A message that cannot be delivered becomes a dead letter ('dead') or,
-- where no letter can hold it, stands in the quarantine ('quarantined'); the state of a channel that cannot be updated,
-- or that a signal cannot be applied to, is made anew from its messages ('mended', message_id null), and so are the
-- states of the queue's limits (channel_id null too). No row: it found nothing, and the error is not about a row. Each
-- suspect is tried by itself and undone. It tries all messages that a dequeue of p_limit messages can take, and the
-- first 1,000 each of expired leases, promotions and signals. What a dequeue does before it takes messages is done
-- where it can be: these are taken back, promoted and heard, and changes of plans come to the first 1,000 channels.
-- Locks: as fq_reclaim, fq_promote, fq_spread_plans and fq_hear, messages and state rows, all skip locked: it waits for
-- none.
-- Index: as fq_dequeue, fq_hear, fq_reclaim and fq_promote. Errors: QF001 bad argument; QF007.
create function fairqueue.fq_set_aside(
  p_queue text, p_limit integer, p_lease_id bigint default null, p_ids bigint[] default null,
  p_reason text default null
)
returns table (message_id bigint, channel_id bigint, outcome text, reason text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now bigint := fairqueue.fq_now();
  v_channels bigint[];
  v_found boolean := false;
  r record;
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  if p_queue is null or p_limit is null or p_limit not between 1 and 100000 then
    raise exception 'fq_set_aside has queue %, limit %', left(p_queue, 80), p_limit
      using errcode = 'QF001', hint = 'name a queue and the limit of the dequeue that failed, 1 to 100000';
  end if;
  if p_ids is not null then
    for r in
      select m.ctid as row, m.id, m.channel_id
      from unnest(p_ids) u(id)
      join fairqueue.fq_message m on m.id = u.id
      where m.lease_id = p_lease_id
        and exists (
          select
          from fairqueue.fq_channel c
          where c.id = m.channel_id
            and c.queue = p_queue
        )
      for update of m skip locked
    loop
      message_id := r.id;
      channel_id := r.channel_id;
      reason := format('set aside, for its consumer cannot read it: %s', left(p_reason, 1000));
      outcome := fairqueue.fq_quarantine(p_queue, r.id::bigint, r.row::tid, reason::text);
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

  -- Signals.
  for r in
    select f.channel_id, f.reason
    from fairqueue.fq_repair_signalled(p_queue) f
  loop
    message_id := null;
    channel_id := r.channel_id;
    outcome := 'mended';
    reason := format('a signal cannot be applied: %s', left(r.reason, 1000));
    v_found := true;
    return next;
  end loop;

  -- Limits of the queue.
  reason := fairqueue.fq_repair_limits(p_queue);
  if reason is not null then
    message_id := null;
    channel_id := null;
    outcome := 'mended';
    reason := format('the states of its limits cannot be updated: %s', left(reason, 1000));
    v_found := true;
    return next;
  end if;

  -- What a dequeue does with the state of ready channels. (Nothing is computed of a row before it is alone.)
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
  for r in
    select u.id, u.ord
    from unnest(v_channels) with ordinality u(id, ord)
    order by u.ord
  loop
    -- Who changes a channel holds its row until the end of a transaction; a dequeue passes it by as well.
    perform
    from fairqueue.fq_channel_state s
    where s.channel_id = r.id
    for no key update skip locked;
    continue when not found;
    reason := fairqueue.fq_test_channel(r.id::bigint, v_now::bigint);
    if reason is not null and fairqueue.fq_repair_channel(p_queue, r.id::bigint) then
      message_id := null;
      channel_id := r.id;
      outcome := 'mended';
      reason := format('its state cannot be updated: %s', left(reason, 1000));
      v_found := true;
      return next;
    end if;
  end loop;

  -- The messages that come first in each of them, and one more: a dequeue looks at the size of the next one too. First
  -- as many as a dequeue takes, and some more, in turn. If all of these are good, the limits and weights of channels
  -- let it go deeper into one of them: all that it can reach, up to the first bad one.
  for v_pass in 1..2 loop
    for r in
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
      where x.ctid = r.row
        and x.id is not distinct from r.id
        and num_nulls(x.lease_id) = 1
      for update skip locked;
      continue when not found;
      reason := fairqueue.fq_test_message(r.id::bigint, r.row::tid);
      if reason is not null then
        v_found := true;
        message_id := r.id;
        channel_id := r.channel_id;
        reason := format('set aside, for it cannot be delivered: %s', left(reason, 1000));
        outcome := fairqueue.fq_quarantine(p_queue, r.id::bigint, r.row::tid, reason::text);
        return next;
        exit when v_pass = 2;
      end if;
    end loop;
    exit when v_found;
  end loop;
end
$$;
