-- fq_configure_plan: make a plan of a queue, change it or remove it, in the caller's transaction. p_changes: the fields
-- to change, as fq_changed_policy takes them; null: remove it, which is refused while it is followed or the default of
-- its queue. p_notify: wake waiting consumers. False: there was none to remove.
-- Guarantees: one row is written, however many channels follow. A dequeue that begins after the commit takes no message
-- of a channel under older values of max_concurrency, rate and weight; other channels get the change from
-- fq_spread_plans. A channel that is being made from a plan that goes keeps its values, and follows none.
-- Locks: the queue's row if this is its first plan, and the plan's for update; waits for another change of the plan,
-- and for a transaction that puts a channel on it. Index: fq_plan_pkey, fq_queue_pkey, fq_channel_plan_followers_ix.
-- Errors: QF001 bad name, bad policy, in use; 40001; QF007.
create function fairqueue.fq_configure_plan(p_queue text, p_name text, p_changes jsonb, p_notify boolean default true)
returns boolean
language plpgsql
security definer
as $$
declare
  v_channels bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue,plan}'::text[], array[p_queue, p_name]::text[]);
  if p_changes is not null then
    insert into fairqueue.fq_queue as q (name, plans)
    values (p_queue, true)
    on conflict (name) do update
    set plans = true
    where not q.plans;
  end if;
  loop
    perform
    from fairqueue.fq_plan n
    where n.queue = p_queue
      and n.name = p_name
    for update;
    exit when found;
    if p_changes is null then
      return false;
    end if;
    insert into fairqueue.fq_plan (queue, name, policy, revision)
    values (p_queue, p_name, '{}', 0)
    on conflict (queue, name) do nothing;
  end loop;
  if p_changes is not null then
    update fairqueue.fq_plan n
    set policy = fairqueue.fq_changed_policy(n.policy::jsonb, p_changes),
      revision = greatest(n.revision + 1, fairqueue.fq_now()),
      spread_after = 0,
      spread_again = null,
      spread_at = 0
    where n.queue = p_queue
      and n.name = p_name;
    perform fairqueue.fq_wake(p_queue)
    where p_notify;
    return true;
  end if;
  if exists (select from fairqueue.fq_queue q where q.name = p_queue and q.default_plan = p_name) then
    raise exception 'the plan % is the default plan of queue %', left(p_name, 80), left(p_queue, 80)
      using errcode = 'QF001', hint = 'give the queue another one first, or none: configure(default_plan=None)';
  end if;
  select count(*) into v_channels
  from fairqueue.fq_channel_plan o
  where o.queue = p_queue
    and o.plan = p_name;
  if v_channels > 0 then
    raise exception '% channels of queue % follow the plan %', v_channels, left(p_queue, 80), left(p_name, 80)
      using errcode = 'QF001', hint = 'put them on another plan first, or on none: configure_channel(plan=None)';
  end if;
  delete from fairqueue.fq_plan n
  where n.queue = p_queue
    and n.name = p_name;
  return true;
end
$$;
