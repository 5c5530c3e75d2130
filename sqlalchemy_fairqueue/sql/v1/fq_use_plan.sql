-- fq_use_plan: lock a plan for channels that are put on it, before their state rows.
-- Guarantees: until the transaction ends nobody else changes or removes it.
-- Locks: the plan, for key share; waits for a transaction that changes or removes it. Index: fq_plan_pkey.
-- Errors: QF001 no such plan; 40001.
create function fairqueue.fq_use_plan(p_queue text, p_plan text)
returns void
language plpgsql
as $$
begin
  perform
  from fairqueue.fq_plan n
  where n.queue = p_queue
    and n.name = p_plan
  for key share;
  if not found then
    raise exception 'queue % has no plan %', left(p_queue, 80), left(p_plan, 80)
      using errcode = 'QF001', hint = 'make it first: configure_plan(where, name, ...)';
  end if;
end
$$;
