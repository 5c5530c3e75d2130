-- fq_repair_queue: count the slots of a queue that has a limit anew from its messages, take the limits from its
-- configuration, and delete all but the newest of its dispatch rows. Returns whether it did; false: somebody else has
-- one of them locked, and nothing is changed.
-- Guarantees: no slot of the queue is freed twice: existing signals free none any more, and slots of signals that
-- somebody has locked are counted until they are heard.
-- Locks: the dispatch row for no key update, without which no dequeue takes a message of a queue with a limit, and
-- signals for update, all skip locked: it waits for none.
-- Index: fq_queue_state_newest_ix, fq_lease_expires_ix, fq_message_lease_ix, fq_signal_pkey. Errors: none.
create function fairqueue.fq_repair_queue(p_queue text)
returns boolean
language plpgsql
as $$
declare
  v_rows tid[];
  v_freeing record;
begin
  v_rows := array(
    select s.ctid
    from fairqueue.fq_queue_state s
    where s.queue = p_queue
    order by s.queue desc, s.row_version desc
    for no key update skip locked
  );
  if v_rows = '{}' or cardinality(v_rows) < (
    select count(*)
    from fairqueue.fq_queue_state s
    where s.queue = p_queue
  ) then
    return false;
  end if;

  -- A new statement: no dequeue and no hearing changes the count any more.
  update fairqueue.fq_signal g
  set queue_freed = 0,
    queue_freed_cost = null
  where g.ctid = any (array(
      select x.ctid
      from fairqueue.fq_signal x
      where x.queue = p_queue
        and (x.queue_freed <> 0 or x.queue_freed_cost <> 0)
      for update skip locked
    ));
  select coalesce(sum(least(greatest(g.queue_freed, 0), 1000000)), 0) as slots,
    coalesce(sum(least(greatest(g.queue_freed_cost, 0), 1000000000000000)), 0) as cost
  into v_freeing
  from fairqueue.fq_signal g
  where g.queue = p_queue
    and g.queue_freed <> 0;
  delete from fairqueue.fq_queue_state s
  where s.ctid = any (v_rows[2:]);
  update fairqueue.fq_queue_state s
  set row_version = case when s.row_version between 0 and 4611686018427387903 then s.row_version + 1 else 0 end,
    max_concurrency = q.max_concurrency,
    max_cost_out = q.max_cost_out,
    rate_interval = coalesce(q.rate_interval, 0),
    rate_burst = coalesce(q.rate_burst, 1),
    rate_of = coalesce(q.rate_of, 'messages'),
    owed_cost = 0,
    rate_at = greatest(0, least(s.rate_at, fairqueue.fq_now())),
    current_concurrency = h.messages,
    current_cost = h.cost
  from (
    select v_freeing.slots + count(*) as messages,
      v_freeing.cost + coalesce(sum(fairqueue.fq_charged(m.charged, m.cost::integer)), 0) as cost
    from fairqueue.fq_lease e
    join fairqueue.fq_message m on m.lease_id = e.id
    where e.queue = p_queue
      and m.slots & 2 = 2
  ) h
  left join fairqueue.fq_queue q on q.name = p_queue
  where s.ctid = v_rows[1];
  return true;
end
$$;
