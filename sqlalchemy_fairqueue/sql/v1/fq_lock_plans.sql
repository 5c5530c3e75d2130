-- fq_lock_plans: lock plans of a queue, in the order of their names, before verbs of one transaction that lock channels
-- or messages as well: p_removed: plans to remove or change; p_used: plans that channels are put on. A missing plan is
-- passed over.
-- Guarantees: until the transaction ends nobody else removes or changes them, or puts a channel on those in p_removed.
-- Locks: the plans' rows, for update or for key share; waits for a transaction that has one. Index: fq_plan_pkey.
-- Errors: 40001; QF007.
create function fairqueue.fq_lock_plans(p_queue text, p_removed text[], p_used text[])
returns void
language plpgsql
security definer
as $$
declare
  r record;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  for r in
    select distinct n.name collate "C" as name, n.name = any (p_removed) as removed
    from unnest(p_removed || p_used) n(name)
    order by 1
  loop
    if r.removed then
      perform
      from fairqueue.fq_plan n
      where n.queue = p_queue
        and n.name = r.name
      for update;
    else
      perform
      from fairqueue.fq_plan n
      where n.queue = p_queue
        and n.name = r.name
      for key share;
    end if;
  end loop;
end
$$;
