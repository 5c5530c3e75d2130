-- fq_set_aside: find what makes a dequeue of a queue fail by an error about data, and take it out of the way, before the
-- dequeue is tried again. With p_ids: messages under the lease p_lease_id that the caller cannot read. Returns a row for
-- each: a message becomes a dead letter ('dead') or, if none can hold it, its channel is paused until it is resumed
-- ('paused'); so is a channel whose state cannot be updated (message_id null). No row: the error has another cause.
-- Guarantees: what a dequeue of p_limit messages can take is tried and undone, channel by channel. Locks: as the steps
-- of a dequeue, all skip locked. Index: theirs. Errors: QF001 bad argument; QF007.
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

  -- What this frees and brings decides which messages a dequeue reaches.
  begin
    perform fairqueue.fq_reclaim(p_queue, 1000::integer);
    perform fairqueue.fq_promote(p_queue, 1000::integer, v_now);
    perform fairqueue.fq_spread_plans(p_queue, 1000::integer);
    perform fairqueue.fq_hear(p_queue);
  exception
    -- The next dequeue raises the error, if nothing else is found.
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;

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
