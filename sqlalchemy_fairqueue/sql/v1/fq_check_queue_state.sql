-- fq_check_queue_state: refuse a state row of a queue that has no gate, or that has a state row, and values out of their
-- bounds. The trigger of fq_queue_state calls it for each row that is inserted.
-- Guarantees: of two transactions that insert a state row of one queue the second is refused: it waits for a part of
-- the gate, which the first has locked.
-- Locks: a part of the gate, for no key update. Index: fq_gate_pkey,
-- fq_queue_state_newest_ix.
-- Errors: 23503 the queue has no gate; 23505 it has a state row; 23514 a bad value; QF003 above READ COMMITTED, as
-- fq_limit_queue.
create function fairqueue.fq_check_queue_state()
returns trigger
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  if (
    new.row_version >= 0 and new.max_concurrency >= 1 and new.current_concurrency >= 0
    and new.rate_interval between 0 and 31536000000000 and new.rate_burst between 1 and 1000000
    and new.rate_at between 0 and 253402300799999999 and new.due_floor >= 0 and new.noted_at >= 0
  ) is false then
    raise exception 'a state row of queue % has a bad value', left(new.queue, 80)
      using errcode = '23514', table = 'fq_queue_state', detail = to_jsonb(new)::text,
        hint = 'counts are 0 or more, a limit 1 or more, a rate up to 365 days, times up to the year 9999';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a state row of queue % comes in a % transaction', left(new.queue, 80),
        current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'insert it in a READ COMMITTED transaction';
  end if;
  perform
  from fairqueue.fq_gate g
  where g.queue = new.queue
    and g.part = 0
  for no key update;
  if not found then
    raise exception 'queue % has no gate', left(new.queue, 80)
      using errcode = '23503', table = 'fq_queue_state', hint = 'dequeue from it, or give it a limit';
  end if;
  -- A new statement, which sees the commit that it waited for.
  perform
  from fairqueue.fq_queue_state s
  where s.queue = new.queue
  order by s.queue desc, s.row_version desc
  limit 1;
  if found then
    raise exception 'queue % has a state row', left(new.queue, 80)
      using errcode = '23505', table = 'fq_queue_state', hint = 'change the row that it has';
  end if;
  return new;
end
$$;
