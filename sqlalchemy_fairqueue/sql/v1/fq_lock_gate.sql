-- fq_lock_gate: close the gate of a queue until the transaction ends, and write down whether the queue has a limit from
-- then on (p_limited; null: close it only).
-- Guarantees: from the return on no dequeue takes a message of a queue that had no limit: calls that had a part of the
-- gate have ended, and no other one gets a part. A dequeue that gets one afterwards reads what was written down.
-- Locks: the parts of the gate, for update, in their order; waits for dequeues under way, and for another change.
-- Index: fq_gate_pkey. Errors: 40001; QF007.
create function fairqueue.fq_lock_gate(p_queue text, p_limited boolean default null)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  for v_pass in 1..2 loop
    perform
    from fairqueue.fq_gate g
    where g.queue = p_queue
    order by g.queue, g.part
    for update;
    exit when found;
    insert into fairqueue.fq_gate (queue, part)
    select p_queue, i.i
    from generate_series(-1, 63) i(i)
    on conflict (queue, part) do nothing;
  end loop;
  update fairqueue.fq_gate g
  set limited = p_limited
  where g.queue = p_queue
    and g.limited <> p_limited;
end
$$;
