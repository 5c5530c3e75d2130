-- fq_configure_channel: change the policy of one channel, in the caller's transaction. p_changes: the fields to change,
-- as fq_changed_policy takes them; two more members: plan: the name of the plan to follow (null: none, and the values
-- stay); reset: an array of fields that get the value of the plan again, or without a plan that of new channels. A
-- field that is changed here does not follow the plan any more, unless reset names it, too. A missing channel is made
-- as by fq_make_channels, with p_policy. p_notify: wake waiting consumers.
-- Guarantees: takes effect on the next dequeue after the commit. The locked row is changed, so concurrent changes of
-- different fields both last. No limit is broken: leased messages are counted when max_concurrency or max_cost_out is
-- set, and each frees what its own row says that it holds, so the count is right however the limit is set, lowered and
-- lifted. A channel that may be served at once keeps its place in the ready order; for another one a signal is left,
-- see fq_write_policies. When max_backlog is set, the backlog is counted anew. A channel without a plan and with all
-- fields reset counts as never configured: it is forgotten when it is idle.
-- Locks: the plan that is named, for key share; the channel's state row; if max_concurrency or max_cost_out is set, its
-- leased messages that hold no slot, in the order of their ids; waits for a transaction that has one of these, and for
-- one that changes or removes the plan. Until the commit dequeues pass the channel by, and only who changes or removes
-- the plan waits for it.
-- Index: fq_channel_state_newest_ix, fq_channel_plan_pkey, fq_plan_pkey, fq_lease_expires_ix, fq_message_lease_ix;
-- counting reads the channel's stretch of fq_message_ready_ix and the queue's signals.
-- Errors: QF001 bad policy or name, no such plan; 40001; QF007.
create function fairqueue.fq_configure_channel(
  p_queue text, p_channel text, p_changes jsonb, p_policy jsonb default null, p_notify boolean default false
)
returns void
language plpgsql
security definer
as $$
declare
  v_channel_id bigint;
  v_row tid;
  p record;
  g record;
  v_state fairqueue.fq_channel_state;
  v_counts_anew boolean := p_changes ?| array['plan', 'reset'];
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if jsonb_typeof(p_changes) <> 'object' then
    perform fairqueue.fq_changed_policy(null::jsonb, p_changes);
  end if;
  if p_changes ->> 'plan' is not null then
    -- Before the state row, as a transaction that changes or removes the plan does.
    perform fairqueue.fq_use_plan(p_queue, (p_changes ->> 'plan')::text);
  end if;
  perform fairqueue.fq_make_channels(p_queue, array[p_channel]::text[], p_policy);
  select c.id into strict v_channel_id
  from fairqueue.fq_find_channel(p_queue, p_channel) c;
  v_row := fairqueue.fq_lock_state(v_channel_id);
  p := fairqueue.fq_policy_after(p_queue, v_channel_id, v_row, p_changes);
  v_state := p.state;

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
  values (v_channel_id, p_queue, p.plan, p.overridden, coalesce(p.revision, 0))
  on conflict (channel_id) do update
  set plan = excluded.plan,
    overridden = excluded.overridden,
    revision = excluded.revision;
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
