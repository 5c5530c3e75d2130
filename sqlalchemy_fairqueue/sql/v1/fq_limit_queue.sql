-- fq_limit_queue: change the limits of a queue, of all its channels together, in the caller's transaction. p_changes: a
-- JSON object with those to change: max_concurrency, max_cost_out, rate_interval with rate_burst, rate_of, limits (the
-- names of the shared limits that it draws from; null: none). p_notify: wake waiting consumers.
-- Guarantees: takes effect with the commit and is exact: messages that are out are counted, and each frees what its own
-- row says that it holds. While more are out than a new limit allows, none is delivered. A new rate counts from the
-- last message that the old one counted.
-- Locks: as fq_lock_queue, then the messages that are out in the order of their ids; waits for another
-- configuration, transactions that end messages, dequeues under way. Until the commit dequeues return nothing. READ
-- COMMITTED only: an older snapshot would miss messages. Index: fq_queue_pkey, fq_queue_state_newest_ix, those of
-- fq_give_slots. Errors: QF001, QF003, QF007.
create function fairqueue.fq_limit_queue(p_queue text, p_changes jsonb, p_notify boolean default true)
returns void
language plpgsql
security definer
as $$
declare
  v_new fairqueue.fq_queue;
  v_unknown text;
  v_limited boolean;
  v_marked record;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_limit_queue runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction';
  end if;
  perform fairqueue.fq_lock_queue(p_queue, false::boolean);
  select q.* into v_new
  from fairqueue.fq_queue q
  where q.name = p_queue;
  v_new := jsonb_populate_record(
    v_new, fairqueue.fq_changed_policy(to_jsonb(v_new)::jsonb, (p_changes - 'limits')::jsonb, 'limit'::text)
  );
  if p_changes ? 'limits' then
    if p_changes ->> 'limits' is not null
      and (
        jsonb_typeof(p_changes -> 'limits') <> 'array'
        or jsonb_array_length(p_changes -> 'limits') not between 1 and 16
      )
    then
      raise exception 'the limits of a queue are %', left(p_changes ->> 'limits', 200)
        using errcode = 'QF001', hint = 'give the names of 1 to 16 shared limits as an array, or null for none';
    end if;
    select array_agg(distinct u.name order by u.name) into v_new.limits
    from jsonb_array_elements_text(nullif(p_changes -> 'limits', 'null')) u(name);
    -- A call that removes one of these limits waits.
    perform
    from fairqueue.fq_limit f
    where f.name = any (v_new.limits)
    order by f.name
    for key share;
    select u.name into v_unknown
    from unnest(v_new.limits) u(name)
    where not exists (select from fairqueue.fq_limit f where f.name = u.name);
    if found then
      raise exception 'there is no limit %', left(v_unknown, 80)
        using errcode = 'QF001', hint = 'make it first: queue.limits.configure(where, name, max_concurrency=...)';
    end if;
  end if;

  v_limited := num_nonnulls(v_new.max_concurrency, v_new.max_cost_out, v_new.limits) > 0 or v_new.rate_interval > 0;
  if v_limited then
    -- Wait for transactions that end messages before deliveries are stopped, so that these need not stand still as long.
    -- Undo it: messages that are taken meanwhile could not be locked in the order of ids.
    begin
      perform fairqueue.fq_give_slots(p_queue, 2::integer, null::bigint);
      raise exception using errcode = 'QF099', message = 'waited';
    exception when sqlstate 'QF099' then
      null;
    end;
  end if;
  if v_limited then
    perform fairqueue.fq_lock_queue(p_queue, true::boolean);
  else
    -- Nothing is counted. The states of channels, locked as late as this, could be in a circle with their changes.
    perform
    from fairqueue.fq_queue_state s
    where s.queue = p_queue
    order by s.queue desc, s.row_version desc
    limit 1
    for no key update;
  end if;
  update fairqueue.fq_queue q
  set max_concurrency = v_new.max_concurrency,
    max_cost_out = v_new.max_cost_out,
    rate_interval = v_new.rate_interval,
    rate_burst = v_new.rate_burst,
    rate_of = v_new.rate_of,
    limits = v_new.limits
  where q.name = p_queue;
  select coalesce(max(g.given), 0) as given, coalesce(max(g.cost), 0) as cost into v_marked
  from fairqueue.fq_give_slots(p_queue, 2::integer, null::bigint) g
  where v_limited;

  insert into fairqueue.fq_queue_state (queue)
  select p_queue
  where v_limited
    and not exists (select from fairqueue.fq_queue_state s where s.queue = p_queue);
  update fairqueue.fq_queue_state s
  set row_version = s.row_version + 1,
    max_concurrency = v_new.max_concurrency,
    max_cost_out = v_new.max_cost_out,
    current_concurrency = s.current_concurrency + v_marked.given,
    current_cost = s.current_cost + v_marked.cost,
    rate_interval = v_new.rate_interval,
    rate_burst = v_new.rate_burst,
    rate_of = v_new.rate_of,
    rate_at = least(s.rate_at, fairqueue.fq_now() + v_new.rate_burst * v_new.rate_interval)
  where s.ctid = (
    select n.ctid
    from fairqueue.fq_queue_state n
    where n.queue = p_queue
    order by n.queue desc, n.row_version desc
    limit 1
  );
  if p_changes ? 'limits' then
    -- No dequeue of the queue is under way, so nobody writes its shares.
    delete from fairqueue.fq_limit_share s
    where s.queue = p_queue
      and (s.limit_name = any (v_new.limits)) is not true;
    insert into fairqueue.fq_limit_share (limit_name, queue)
    select u.name, p_queue
    from unnest(v_new.limits) u(name)
    where not exists (
        select
        from fairqueue.fq_limit_share s
        where s.limit_name = u.name
          and s.queue = p_queue
      );
  end if;
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
