-- fq_remove_plan: remove a plan that no channel follows and that is not the default of its queue, in the caller's
-- transaction. A missing plan is none to remove.
-- Guarantees: a plan that is followed stays. A channel that another transaction makes from the plan at this moment
-- keeps its values, and follows no plan.
-- Locks: the plan's row for update; waits for another change of it, and for a configuration that puts a channel on it.
-- Index: fq_plan_pkey, fq_channel_plan_followers_ix. Errors: QF001 it is in use; 40001; QF007.
create function fairqueue.fq_remove_plan(p_queue text, p_name text)
returns void
language plpgsql
security definer
as $$
declare
  v_channels bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform
  from fairqueue.fq_plan n
  where n.queue = p_queue
    and n.name = p_name
  for update;
  if not found then
    return;
  end if;
  perform
  from fairqueue.fq_queue q
  where q.name = p_queue
    and q.default_plan = p_name;
  if found then
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
end
$$;
