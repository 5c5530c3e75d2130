-- fq_repair_channel: make the state row of a channel anew from its messages. Its policy stays, but for a field that is
-- out of its bounds: too little becomes the least, too much the initial value. Returns whether it did; false: somebody
-- else has the state row locked.
-- Guarantees: the head, the backlog and the slots are counted from the messages, which includes what signals of the
-- channel say. So these signals are deleted; the slots of the queue that they free stay in one. A channel with a name
-- has one state row afterwards. Cost: all messages of the channel are read.
-- Locks: the state row for no key update and its signals for update, both skip locked: it waits for none.
-- Index: fq_channel_state_newest_ix, fq_message_ready_ix, fq_message_lease_ix, fq_signal_pkey. Errors: none.
create function fairqueue.fq_repair_channel(p_queue text, p_channel_id bigint)
returns boolean
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_row tid;
  v_versions tid[];
  v_queue_freed bigint;
  v_queue_freed_cost numeric;
  v_heard bigint;
  v_state fairqueue.fq_channel_state;
  v_policy jsonb;
begin
  v_versions := array(
    select s.ctid
    from fairqueue.fq_channel_state s
    where s.channel_id = p_channel_id
    order by s.channel_id desc, s.row_version desc
    for no key update skip locked
  );
  if cardinality(v_versions) < (
    select count(*)
    from fairqueue.fq_channel_state s
    where s.channel_id = p_channel_id
  ) then
    return false;
  end if;
  v_row := v_versions[1];
  delete from fairqueue.fq_channel_state s
  where s.ctid = any (v_versions[2:]);

  -- A new statement: no dequeue and no hearing changes the channel any more.
  with told as (
    delete from fairqueue.fq_signal g
    where g.ctid in (
        select x.ctid
        from fairqueue.fq_signal x
        where x.queue = p_queue
          and x.channel_id = p_channel_id
        for update skip locked
      )
    returning g.queue_freed, g.queue_freed_cost, g.id
  )
  select sum(t.queue_freed) filter (where t.queue_freed > 0),
    sum(t.queue_freed_cost) filter (where t.queue_freed_cost > 0), max(t.id)
  into v_queue_freed, v_queue_freed_cost, v_heard
  from told t;
  insert into fairqueue.fq_signal (queue, channel_id, queue_freed, queue_freed_cost)
  values (
    p_queue, p_channel_id, least(coalesce(v_queue_freed, 0), 1000000),
    least(coalesce(v_queue_freed_cost, 0), 1000000000000000)
  );
  if v_row is null then
    return true;
  end if;
  update fairqueue.fq_channel_state s
  set row_version = case when s.row_version between 0 and 4611686018427387903 then s.row_version + 1 else 0 end,
    rate_at = case when s.rate_at between 0 and v_now + 31536000000000 then s.rate_at else v_now end,
    last_dequeue_at = greatest(0, least(s.last_dequeue_at, v_now)),
    (current_concurrency, current_cost) = (
      select count(*), coalesce(sum(fairqueue.fq_charged(m.charged, m.cost::integer)), 0)
      from fairqueue.fq_lease e
      join fairqueue.fq_message m on m.lease_id = e.id
      where e.queue = p_queue
        and m.channel_id = p_channel_id
        and m.slots & 1 = 1
    ),
    backlog = (
      select count(*)
      from fairqueue.fq_message m
      where m.channel_id = p_channel_id
        and m.lease_id is null
    ),
    dropped = greatest(0, s.dropped),
    tag = case when s.tag between -9000000000000000000 and -1 then s.tag end,
    tag_rest = null,
    mean_cost = case when s.mean_cost between 0 and 1000000000 then s.mean_cost end,
    heard_id = greatest(0, least(s.heard_id, coalesce(v_heard, 0))),
    (head_dequeue_at, head_message_id) = (
      select x.dequeue_at, x.id
      from fairqueue.fq_message x
      where x.channel_id = p_channel_id
        and x.lease_id is null
      order by x.channel_id, x.dequeue_at, x.id
      limit 1
    ),
    ready_tag = null,
    due_at = null
  where s.ctid = v_row
  returning s.ctid into v_row;
  select s.* into v_state
  from fairqueue.fq_channel_state s
  where s.ctid = v_row;
  select jsonb_object_agg(
    f.name,
    case
      when f.words is not null then case when v.value #>> '{}' = any (f.words) then v.value else f.initial end
      when v.value = 'null' then v.value
      when v.value::bigint > f.maximum then f.initial
      else to_jsonb(greatest(f.minimum, v.value::bigint))
    end
  )
  into v_policy
  from fairqueue.fq_policy_fields('policy'::text) f
  join jsonb_each(to_jsonb(v_state)) v on v.key = f.name;
  if (v_policy ->> 'rate_interval')::numeric * (v_policy ->> 'rate_burst')::numeric > 31536000000000 then
    v_policy := v_policy || '{"rate_burst": 1}';
  end if;
  v_state := jsonb_populate_record(v_state, v_policy);
  perform fairqueue.fq_write_policies(
    p_queue, array[v_row]::tid[], array[v_state]::fairqueue.fq_channel_state[], true::boolean
  );
  return true;
end
$$;
