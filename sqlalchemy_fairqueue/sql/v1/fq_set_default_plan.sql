-- fq_set_default_plan: the plan that channels of a queue made from now on follow, in the caller's transaction; null:
-- none. It goes before the policy that is configured for new channels. Existing channels keep their plan.
-- Guarantees: takes effect with the commit. Locks: the queue's row, then the plan's for key share; waits for another
-- configuration of the queue, and for a removal of the plan. Index: fq_queue_pkey, fq_plan_pkey. Errors: QF001 no such
-- plan; 40001; QF007.
create function fairqueue.fq_set_default_plan(p_queue text, p_plan text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  insert into fairqueue.fq_queue as q (name, default_plan)
  values (p_queue, p_plan)
  on conflict (name) do update
  set default_plan = excluded.default_plan;
  if p_plan is not null then
    perform
    from fairqueue.fq_plan n
    where n.queue = p_queue
      and n.name = p_plan
    for key share;
    if not found then
      raise exception 'queue % has no plan %', left(p_queue, 80), left(p_plan, 80)
        using errcode = 'QF001', hint = 'make it first: configure_plan(where, name, ...)';
    end if;
  end if;
end
$$;
