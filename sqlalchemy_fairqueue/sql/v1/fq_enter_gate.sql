-- fq_enter_gate: enter the gate of a queue without a limit, for a delivery. False: it is closed, and nothing may be
-- taken: a transaction that sets the first limit of the queue counts the messages that are out, and has locked the gate
-- so that none is added (fq_lock_gate).
-- Guarantees: until the caller's transaction ends, nobody sets the first limit of the queue. A limit that was set since
-- the caller began is read from the row that is locked here. The first delivery of a queue makes the gate.
-- Locks: one of the 64 parts of the gate for no key update, skip locked; if all are locked, one for key share;
-- fq_open_queue waits 5 ms at most.
-- Index: fq_gate_pkey. Errors: none.
create function fairqueue.fq_enter_gate(p_queue text)
returns boolean
language plpgsql
as $$
declare
  v_limited boolean;
  v_door xid;
begin
  -- A backend tries a part of its own first.
  select g.limited, d.xmax into v_limited, v_door
  from fairqueue.fq_gate d
  join fairqueue.fq_gate g on g.queue = d.queue
  where d.queue = p_queue
    and d.part = -1
    and g.part = pg_backend_pid() & 63
  for no key update of g skip locked;
  if not found then
    for v_pass in 1..2 loop
      -- Another backend has that part: any that is free.
      select g.limited, d.xmax into v_limited, v_door
      from fairqueue.fq_gate d
      join fairqueue.fq_gate g on g.queue = d.queue
      where d.queue = p_queue
        and d.part = -1
        and g.part >= 0
      limit 1
      for no key update of g skip locked;
      exit when found;
      -- No part is free, since there are more calls than parts. Two calls share one then, at the price of a multixact.
      select g.limited, d.xmax into v_limited, v_door
      from fairqueue.fq_gate d
      join fairqueue.fq_gate g on g.queue = d.queue
      where d.queue = p_queue
        and d.part = -1
        and g.part >= 0
      limit 1
      for key share of g skip locked;
      exit when found or v_pass = 2;
      exit when exists (
        select
        from fairqueue.fq_gate g
        where g.queue = p_queue
      );
      exit when not fairqueue.fq_open_queue(p_queue);
    end loop;
  end if;
  if v_limited is distinct from false then
    return false;
  end if;
  -- While a transaction that has locked the door waits for the parts, no further call may enter.
  if v_door <> 0 then
    return pg_xact_status(fairqueue.fq_full_xid(v_door)) is distinct from 'in progress';
  end if;
  return true;
end
$$;
