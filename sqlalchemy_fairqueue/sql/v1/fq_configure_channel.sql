-- fq_configure_channel: change the policy of one channel, in the caller's transaction. p_changes: the fields to change,
-- as fq_changed_policy takes them; plan: the name of the plan to follow (null: none, and the values stay); reset: an
-- array of fields that get the value of the plan again, or without a plan that of new channels. A field that is changed
-- here does not follow the plan any more. p_policy: of a channel that is made; p_notify: wake waiting consumers.
-- Guarantees: takes effect on the next dequeue after the commit; concurrent changes of different fields both last.
-- Messages that are out are counted when a limit is set, and the backlog when max_backlog is; see fq_write_policies. A
-- channel without a plan and with all fields reset counts as never configured: it is forgotten when it is idle.
-- Locks: the plan, for key share; the channel's state row; as fq_make_channels and fq_give_slots; waits for each.
-- Index: fq_channel_plan_pkey, fq_plan_pkey, fq_queue_pkey, fq_message_ready_ix; those of fq_give_slots; reads the
-- queue's signals. Errors: QF001 bad policy or name, no such plan; 40001; QF007.
create function fairqueue.fq_configure_channel(
  p_queue text, p_channel text, p_changes jsonb, p_policy jsonb default null, p_notify boolean default false
)
returns void
language plpgsql
security definer
as $$
declare
  c_rate constant text[] := array['rate_interval', 'rate_burst', 'rate_of'];
  v_changes jsonb := p_changes - array['plan', 'reset'];
  v_fields jsonb := fairqueue.fq_changed_policy(null::jsonb, null::jsonb, 'policy'::text);
  v_reset text[] := '{}';
  v_counts_anew boolean := p_changes ?| array['plan', 'reset'];
  v_channel_id bigint;
  v_row tid;
  v_state fairqueue.fq_channel_state;
  v_followed fairqueue.fq_channel_plan;
  v_plan fairqueue.fq_plan;
  v_base jsonb;
  g record;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if jsonb_typeof(p_changes) <> 'object' then
    perform fairqueue.fq_changed_policy(null::jsonb, p_changes, 'policy'::text);
  end if;
  if jsonb_typeof(p_changes -> 'reset') = 'array' then
    v_reset := array(
      select jsonb_array_elements_text(p_changes -> 'reset')
      union
      select unnest(c_rate)
      where p_changes -> 'reset' ?| c_rate
    );
  end if;
  if jsonb_typeof(p_changes -> 'reset') <> 'array' or not v_fields ?& v_reset then
    raise exception 'the fields to reset are %', left(p_changes ->> 'reset', 200)
      using errcode = 'QF001', hint = 'give an array of names of fields of a policy, such as ["weight"]';
  end if;
  if p_changes ->> 'plan' is not null then
    -- Before the state row, as a transaction that changes or removes the plan does.
    perform fairqueue.fq_lock_plans(p_queue, null::text[], array[p_changes ->> 'plan']::text[]);
  end if;
  perform fairqueue.fq_make_channels(p_queue, array[p_channel]::text[], p_policy);
  select c.id into strict v_channel_id
  from fairqueue.fq_find_channel(p_queue, p_channel) c;
  v_row := fairqueue.fq_lock_state(v_channel_id);

  -- While the state row and the plan are locked, nobody else changes what is read here.
  select s.* into strict v_state
  from fairqueue.fq_channel_state s
  where s.ctid = v_row;
  select o.* into v_followed
  from fairqueue.fq_channel_plan o
  where o.channel_id = v_channel_id;
  v_followed.overridden := array(
    select unnest(v_followed.overridden)
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
    v_followed.plan := p_changes ->> 'plan';
  end if;
  v_state.configured := v_followed.plan is not null
    or v_followed.overridden <> '{}'
    or v_changes <> '{}'
    or not v_reset @> array(select jsonb_object_keys(v_fields));
  select n.* into v_plan
  from fairqueue.fq_plan n
  where n.queue = p_queue
    and n.name = v_followed.plan;
  if found then
    v_base := v_plan.policy - v_followed.overridden;
  elsif p_changes ->> 'plan' is not null then
    raise exception 'queue % has no plan %', left(p_queue, 80), left(v_followed.plan, 80)
      using errcode = 'QF001', hint = 'make it first: queue.plans.configure(where, name, ...)';
  else
    v_base := fairqueue.fq_changed_policy(
      (select q.defaults from fairqueue.fq_queue q where q.name = p_queue)::jsonb, null::jsonb, 'policy'::text
    ) - array(select jsonb_object_keys(v_fields - v_reset));
  end if;
  v_state := jsonb_populate_record(
    v_state, fairqueue.fq_changed_policy((to_jsonb(v_state) || v_base)::jsonb, v_changes, 'policy'::text)
  );

  if num_nonnulls(v_state.max_concurrency, v_state.max_cost_out) > 0
    and (v_counts_anew or p_changes ?| array['max_concurrency', 'max_cost_out'])
  then
    g := fairqueue.fq_give_slots(p_queue, 1::integer, v_channel_id);
    v_state.current_concurrency := v_state.current_concurrency + g.given;
    v_state.current_cost := v_state.current_cost + g.cost;
  end if;
  if v_state.max_backlog is not null and (v_counts_anew or p_changes ? 'max_backlog') then
    -- Nobody applies the signals of a channel whose state row is locked.
    select count(*) - (
      select coalesce(sum(g.added), 0)
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.channel_id = v_channel_id
    )
    into v_state.backlog
    from fairqueue.fq_message m
    where m.channel_id = v_channel_id
      and m.lease_id is null;
  end if;
  perform fairqueue.fq_write_policies(
    p_queue, array[v_row]::tid[], array[v_state]::fairqueue.fq_channel_state[], false::boolean
  );
  insert into fairqueue.fq_channel_plan as o (channel_id, queue, plan, overridden, revision)
  values (v_channel_id, p_queue, v_followed.plan, v_followed.overridden, coalesce(v_plan.revision, 0))
  on conflict (channel_id) do update
  set plan = excluded.plan,
    overridden = excluded.overridden,
    revision = excluded.revision;
  perform fairqueue.fq_wake(p_queue)
  where p_notify;
end
$$;
