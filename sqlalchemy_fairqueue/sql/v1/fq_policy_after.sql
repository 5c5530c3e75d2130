-- fq_policy_after: the policy of a channel after a change, for fq_configure_channel, whose arguments these are. p_row:
-- the channel's state row, which the caller has locked. Returns state: that row with the new policy, and with
-- configured, which keeps the channel when it is idle; plan and revision: the plan that it follows then; overridden:
-- the fields that do not follow the plan.
-- Guarantees: while the state row and the named plan are locked, nobody else changes what is read here.
-- Locks: none. Index: fq_channel_plan_pkey, fq_plan_pkey, fq_queue_pkey; the state by ctid. Errors: QF001 bad policy.
create function fairqueue.fq_policy_after(
  p_queue text, p_channel_id bigint, p_row tid, p_changes jsonb,
  out state fairqueue.fq_channel_state, out plan text, out overridden text[], out revision bigint
)
language plpgsql
as $$
declare
  c_rate constant text[] := array['rate_interval', 'rate_burst', 'rate_of'];
  v_changes jsonb := p_changes - array['plan', 'reset'];
  v_fields jsonb := fairqueue.fq_changed_policy(null::jsonb, null::jsonb);
  v_reset text[] := '{}';
  v_before jsonb;
  v_of_plan jsonb;
begin
  if p_changes ? 'reset' then
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
  end if;
  select s.* into strict state
  from fairqueue.fq_channel_state s
  where s.ctid = p_row;
  v_before := to_jsonb(state);
  select o.plan, o.overridden into plan, overridden
  from fairqueue.fq_channel_plan o
  where o.channel_id = p_channel_id;
  overridden := array(
    select unnest(overridden)
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
    plan := p_changes ->> 'plan';
  end if;
  state.configured := plan is not null
    or overridden <> '{}'
    or v_changes <> '{}'
    or not v_reset @> array(select jsonb_object_keys(v_fields));
  if plan is not null then
    select n.policy, n.revision into v_of_plan, revision
    from fairqueue.fq_plan n
    where n.queue = p_queue
      and n.name = plan;
  end if;
  if v_of_plan is not null then
    v_before := v_before || (v_of_plan - overridden);
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
  state := jsonb_populate_record(state, fairqueue.fq_changed_policy(v_before, v_changes));
end
$$;
