-- fq_configure_channel: change the policy of one channel, in the caller's transaction. p_changes: the fields to change,
-- as fq_changed_policy takes them; the others stay. Two members more: plan, the name of the plan that it follows (null:
-- none, and the values stay), and reset, an array of fields that come from the plan again, or without one from what new
-- channels start with. A field that is named stays as it is when the plan changes, unless it is in reset too. A new
-- channel is made as by fq_make_channels, with p_policy.
-- Guarantees: takes effect on the next dequeue after the commit. The locked state row is changed, so concurrent changes
-- of different fields both last. No limit is broken: leased messages are counted when max_concurrency is set, and each
-- frees what its own row says it holds, so that the count is right however the limit is set, lowered and lifted. A
-- signal lets the next hearing find the channel. When max_backlog is set, the
-- backlog is counted anew. A channel that gets no plan and has all fields reset is one that was never configured: it is
-- forgotten when it is idle. p_notify: wake waiting consumers.
-- Locks: the plan that is named, for key share; the channel's state row; if max_concurrency is set, its leased messages
-- that hold no slot, in the order of their ids; waits for a transaction that has one, and for one that changes or
-- removes the plan. Until the commit the channel is not served (dequeue passes by), and nobody waits for it but who
-- changes or removes the plan.
-- Index: fq_channel_state_newest_ix, fq_channel_plan_pkey, fq_plan_pkey, fq_lease_expires_ix, fq_message_lease_ix;
-- counting reads the channel's stretch of
-- fq_message_ready_ix and the queue's signals.
-- Errors: QF001 bad policy or name, no such plan; 40001; QF007.
create function fairqueue.fq_configure_channel(
  p_queue text,
  p_channel text,
  p_changes jsonb,
  p_policy jsonb default null,
  p_notify boolean default false
)
returns void
language plpgsql
volatile
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_channel_id bigint;
  v_row tid;
  v_before jsonb;
  v_policy fairqueue.fq_channel_state;
  v_marked integer := 0;
  v_backlog bigint;
  v_changes jsonb;
  v_reset text[];
  v_plan text;
  v_overridden text[];
  v_of_plan jsonb;
  v_revision bigint;
  v_configured boolean;
  c_rate constant text[] := array['rate_interval', 'rate_burst'];
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if jsonb_typeof(p_changes) <> 'object' then
    perform fairqueue.fq_changed_policy(null::jsonb, p_changes);
  end if;
  v_changes := p_changes - array['plan', 'reset'];
  if p_changes ->> 'plan' is not null then
    -- Before the state row, as a transaction that changes or removes the plan does.
    perform fairqueue.fq_use_plan(p_queue, (p_changes ->> 'plan')::text);
  end if;
  perform fairqueue.fq_make_channels(p_queue, array[p_channel]::text[], p_policy);
  select c.id into strict v_channel_id
  from fairqueue.fq_channel c
  where c.queue = p_queue
    and c.name = p_channel;
  v_row := fairqueue.fq_lock_state(v_channel_id);
  select to_jsonb(s) into strict v_before
  from fairqueue.fq_channel_state s
  where s.ctid = v_row;
  v_reset := fairqueue.fq_reset_fields(p_changes);
  -- Nobody else changes these while the state row is locked.
  select o.plan, o.overridden into v_plan, v_overridden
  from fairqueue.fq_channel_plan o
  where o.channel_id = v_channel_id;
  v_overridden := array(
    select unnest(v_overridden)
    union
    select jsonb_object_keys(v_changes)
    union
    select unnest(c_rate)
    where v_changes ?| c_rate
    except
    select unnest(v_reset)
    order by 1
  );
  if p_changes ? 'plan' then
    v_plan := p_changes ->> 'plan';
  end if;
  v_configured := v_plan is not null
    or v_overridden <> '{}'
    or v_changes <> '{}'
    or not v_reset @> array(select jsonb_object_keys(fairqueue.fq_changed_policy(null::jsonb, null::jsonb)));
  if v_plan is not null then
    select n.policy, n.revision into v_of_plan, v_revision
    from fairqueue.fq_plan n
    where n.queue = p_queue
      and n.name = v_plan;
  end if;
  if v_of_plan is not null then
    v_before := v_before || (v_of_plan - v_overridden);
  elsif v_reset <> '{}' then
    select v_before || coalesce(jsonb_object_agg(f.key, f.value), '{}') into v_before
    from jsonb_each(
      fairqueue.fq_changed_policy(
        (
          select q.defaults
          from fairqueue.fq_queue q
          where q.name = p_queue
        )::jsonb,
        null::jsonb
      )
    ) f
    where f.key = any (v_reset);
  end if;
  v_policy := jsonb_populate_record(
    null::fairqueue.fq_channel_state, fairqueue.fq_changed_policy(v_before, v_changes)
  );

  if v_policy.max_concurrency is not null
    and (v_changes ? 'max_concurrency' or p_changes ?| array['plan', 'reset'])
  then
    v_marked := fairqueue.fq_give_slots(p_queue, 1::integer, v_channel_id);
  end if;

  if v_policy.max_backlog is not null and (v_changes ? 'max_backlog' or p_changes ?| array['plan', 'reset']) then
    v_backlog := fairqueue.fq_count_backlog(p_queue, v_channel_id);
  end if;

  with configured as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      max_concurrency = v_policy.max_concurrency,
      rate_interval = v_policy.rate_interval,
      rate_burst = v_policy.rate_burst,
      weight = v_policy.weight,
      max_backlog = v_policy.max_backlog,
      drop_when_full = v_policy.drop_when_full,
      priority_aging = v_policy.priority_aging,
      configured = v_configured,
      backlog = coalesce(v_backlog, s.backlog),
      current_concurrency = s.current_concurrency + v_marked,
      rate_at = n.rate_at,
      next_dequeue_at = case
        when s.next_dequeue_at is null then null
        -- the next hearing gives a start tag anew
        when s.next_dequeue_at < 0 then greatest(0, n.allowed_at)
        when s.next_dequeue_at <= v_now then greatest(s.next_dequeue_at, n.allowed_at)
        else greatest(0, s.head_dequeue_at, n.allowed_at)
      end
    from (
      select r.rate_at,
        fairqueue.fq_rate_allows_at(r.rate_at, v_policy.rate_interval, v_policy.rate_burst) as allowed_at
      from (
        select least(o.rate_at, v_now + v_policy.rate_burst * v_policy.rate_interval) as rate_at
        from fairqueue.fq_channel_state o
        where o.ctid = v_row
      ) r
    ) n
    where s.ctid = v_row
      and s.channel_id = v_channel_id
    returning s.head_dequeue_at, s.head_message_id, s.next_dequeue_at
  )
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
  select p_queue, v_channel_id, c.head_dequeue_at, c.head_message_id
  from configured c
  where c.next_dequeue_at is not null;
  insert into fairqueue.fq_channel_plan as o (channel_id, queue, plan, overridden, revision)
  values (v_channel_id, p_queue, v_plan, v_overridden, coalesce(v_revision, 0))
  on conflict (channel_id) do update
  set plan = excluded.plan,
    overridden = excluded.overridden,
    revision = excluded.revision;
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
