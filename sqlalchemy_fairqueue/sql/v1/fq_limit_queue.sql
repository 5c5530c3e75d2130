-- fq_limit_queue: set how many messages of a queue, of all its channels together, may be out at once (null: no limit),
-- in the caller's transaction.
-- Guarantees: takes effect with the commit and is exact: messages that are out are counted when a limit is set, and
-- each frees what its own row says it holds, however the limit is set, lowered and lifted. While more are out than a
-- new limit allows, none is delivered. p_notify: wake waiting consumers (a transaction that notifies cannot be prepared
-- for two-phase commit).
-- Locks: the queue's row, its gate (fq_hold_gate), the messages that are out in the order of their ids, its state row.
-- Waits for another configuration of the queue, for transactions that end messages, for dequeues under way. From the
-- gate to the commit the queue's dequeues return nothing, and a transaction that settles a message that was out waits.
-- READ COMMITTED only: an older snapshot would miss messages that are out.
-- Index: fq_queue_pkey, fq_lease_expires_ix, fq_message_lease_ix, fq_queue_state_newest_ix. Errors: QF001 bad argument,
-- QF003 wrong isolation level; QF007.
create function fairqueue.fq_limit_queue(p_queue text, p_max_concurrency integer, p_notify boolean default true)
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
declare
  v_marked integer := 0;
  v_row tid;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  perform fairqueue.fq_check_names(array[p_queue]::text[]);
  if p_max_concurrency < 1 then
    raise exception 'fq_limit_queue has max_concurrency %', p_max_concurrency
      using errcode = 'QF001', hint = 'give a limit of 1 or more, or null for none; fq_pause stops a queue';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_limit_queue runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction';
  end if;
  insert into fairqueue.fq_queue as q (name, max_concurrency)
  values (p_queue, p_max_concurrency)
  on conflict (name) do update
  set max_concurrency = excluded.max_concurrency;

  if p_max_concurrency is not null then
    -- Wait for transactions that end messages before the gate is closed, so that dequeues need not stand still as long.
    -- The locks are given up again: messages that come to be out meanwhile would have to be locked out of order.
    begin
      perform fairqueue.fq_hold_leased(p_queue, 2::integer, null::bigint);
      raise exception using errcode = 'QF099', message = 'waited';
    exception when sqlstate 'QF099' then
      null;
    end;
  end if;
  perform fairqueue.fq_hold_gate(p_queue, (num_nulls(p_max_concurrency) = 0)::boolean);
  if p_max_concurrency is not null then
    perform fairqueue.fq_hold_leased(p_queue, 2::integer, null::bigint);
    -- A new statement, which sees what was waited for.
    update fairqueue.fq_message m
    set slots = m.slots | 2
    from fairqueue.fq_lease e
    where e.queue = p_queue
      and m.lease_id = e.id
      and m.slots & 2 = 0;
    get diagnostics v_marked = row_count;
  end if;

  select s.ctid into v_row
  from fairqueue.fq_queue_state s
  where s.queue = p_queue
  order by s.queue desc, s.turn desc
  limit 1
  for no key update;
  if found then
    update fairqueue.fq_queue_state s
    set turn = s.turn + 1,
      max_concurrency = p_max_concurrency,
      current_concurrency = s.current_concurrency + v_marked
    where s.ctid = v_row
      and s.queue = p_queue;
  elsif p_max_concurrency is not null then
    insert into fairqueue.fq_queue_state (queue, max_concurrency, current_concurrency)
    values (p_queue, p_max_concurrency, v_marked);
  end if;
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
