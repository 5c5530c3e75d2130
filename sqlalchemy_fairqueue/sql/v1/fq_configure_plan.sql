-- fq_configure_plan: make a plan of a queue, or change it, in the caller's transaction. p_changes: the fields to
-- change, as fq_changed_policy takes them; a new plan has no limits. p_notify: wake waiting consumers.
-- Guarantees: one row is written, however many channels follow the plan. A dequeue that begins after the commit takes
-- no message of a channel under older values of max_concurrency, rate and weight. Channels that nobody takes from get
-- the change from fq_spread_plans, by which they may become ready; until then they have the old values of all other
-- fields.
-- Locks: the queue's row if this is its first plan, and the plan's for update; waits for another change of the plan,
-- and for a transaction that puts a channel on it, since fq_spread_plans would not find that channel.
-- Index: fq_plan_pkey, fq_queue_pkey. Errors: QF001 bad name or policy; 40001; QF007.
create function fairqueue.fq_configure_plan(p_queue text, p_name text, p_changes jsonb, p_notify boolean default true)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue,plan}'::text[], array[p_queue, p_name]::text[]);
  insert into fairqueue.fq_queue as q (name, plans)
  values (p_queue, true)
  on conflict (name) do update
  set plans = true
  where not q.plans;
  -- The name is set, too, so that the row is locked for update.
  insert into fairqueue.fq_plan as n (queue, name, policy, revision, spread_after)
  values (p_queue, p_name, fairqueue.fq_changed_policy(null::jsonb, p_changes, 'policy'::text), fairqueue.fq_now(), 0)
  on conflict (queue, name) do update
  set name = excluded.name,
    policy = fairqueue.fq_changed_policy(n.policy::jsonb, p_changes, 'policy'::text),
    revision = greatest(n.revision + 1, excluded.revision),
    spread_after = 0,
    spread_again = null,
    spread_at = 0;
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
