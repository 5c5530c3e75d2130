-- fq_set_aside: find the rows with which a dequeue of a queue fails by an error about data, and take them out of the
-- way, before the dequeue is tried again. With p_ids: messages under the lease p_lease_id that the caller cannot read.
-- Returns a row for each: a message becomes a dead letter ('dead') or, if none can hold it, its channel is paused until
-- it is resumed ('paused'). The state row of a channel, or the dispatch row of the queue (channel_id null), that cannot
-- be updated is made anew from the messages ('mended'). No row: the error has another cause.
-- Guarantees: what a dequeue of p_limit messages can take, and the first 1,000 signals if they cannot be heard
-- together, is tried and undone, channel by channel. Locks: as the steps of a dequeue, all skip locked. Index: theirs.
-- Errors: QF001 bad argument; QF007.
create function fairqueue.fq_set_aside(
  p_queue text, p_limit integer, p_lease_id bigint default null, p_ids bigint[] default null, p_reason text default null
)
returns table (message_id bigint, channel_id bigint, outcome text, reason text)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_channel bigint;
  v_problem text;
  r record;
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  perform fairqueue.fq_check_number('fq_set_aside has limit'::text, p_limit::bigint, 1::bigint, 100000::bigint);
  if p_ids is not null then
    v_problem := format('set aside, for its consumer cannot read it: %s', left(p_reason, 1000));
    return query
    select m.id, m.channel_id, o.outcome, v_problem
    from (
      select x.id, x.channel_id, x.ctid as row
      from fairqueue.fq_message x
      where x.id = any (p_ids)
        and x.lease_id = p_lease_id
        and (select c.queue from fairqueue.fq_channel c where c.id = x.channel_id) = p_queue
      for update of x skip locked
    ) m
    cross join lateral fairqueue.fq_set_message_aside(p_queue, m.id::bigint, m.row::tid, v_problem) o(outcome)
    where o.outcome is not null;
    return;
  end if;

  -- What this frees decides what a dequeue reaches. If nothing is found, the next dequeue raises the error of a plan.
  return query
  select d.message_id, d.channel_id, d.outcome, d.reason
  from fairqueue.fq_set_leases_aside(p_queue, v_now) d;
  begin
    perform fairqueue.fq_promote(p_queue, 1000::integer, v_now);
    perform fairqueue.fq_spread_plans(p_queue, 1000::integer);
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;
  begin
    perform fairqueue.fq_hear(p_queue);
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      v_problem := sqlerrm;
  end;
  if v_problem is not null then
    message_id := null;
    outcome := 'mended';
    -- Try the signals of each channel by themselves.
    for r in
      select g.channel_id as id, array_agg(g.row) as rows, array_agg(g.id) as ids,
        array_agg(g.channel_id) as channels, max(abs(g.queue_freed::bigint)) > 0 as is_freeing
      from (
        select x.ctid as row, x.id, x.channel_id, x.queue_freed
        from fairqueue.fq_signal x
        where x.queue = p_queue
        order by x.queue, x.xid, x.id
        limit 1000
      ) g
      group by g.channel_id
    loop
      begin
        perform fairqueue.fq_hear_many(
          p_queue, r.rows::tid[], r.ids::bigint[], r.channels::bigint[], true::boolean,
          '-9000000000000000000'::bigint, v_now, false::boolean, false::boolean
        );
        raise exception using errcode = 'QF099', message = 'it is undone';
      exception
        when sqlstate 'QF099' then
          null;
        when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
          reason := format('a signal cannot be applied: %s', left(sqlerrm, 1000));
          if fairqueue.fq_repair_channel(p_queue, r.id::bigint) then
            perform fairqueue.fq_repair_queue(p_queue)
            where r.is_freeing;
            channel_id := r.id;
            return next;
          end if;
      end;
    end loop;
    if channel_id is null and fairqueue.fq_repair_queue(p_queue) then
      reason := format('a signal cannot be applied: %s', left(v_problem, 1000));
      return next;
    end if;
  end if;

  -- Ready channels, then those whose time has come, which a dequeue makes ready. A new time: messages that were let go
  -- just now count, too.
  v_now := fairqueue.fq_now();
  for v_channel in
    (
      select s.channel_id
      from fairqueue.fq_channel_state s
      where s.queue = p_queue
        and s.ready_tag is not null
      order by s.queue, s.ready_tag, s.channel_id
      limit greatest(p_limit, 100)
    )
    union all
    (
      select s.channel_id
      from fairqueue.fq_channel_state s
      where s.queue = p_queue
        and s.due_at <= v_now
      order by s.queue, s.due_at, s.channel_id
      limit 1000
    )
  loop
    return query
    select d.message_id, v_channel, d.outcome, d.reason
    from fairqueue.fq_set_channel_aside(p_queue, v_channel, p_limit, v_now) d;
  end loop;
end
$$;
