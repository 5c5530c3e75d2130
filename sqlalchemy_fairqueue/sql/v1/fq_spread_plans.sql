-- fq_spread_plans: bring the changes of a queue's plans to the channels that follow them, one chunk: up to p_limit
-- channels of one plan, in the order of their ids. followed: channels that got their policy. due_in: microseconds until
-- there is more to do; null: all channels have each change. A dequeue calls it while there is more.
-- Guarantees: a channel that somebody has locked, or that must wait by fq_follow_plans, is passed by. Once all others
-- were visited, these alone are visited again: after 20 ms if a channel of the last chunk got its policy, else after as
-- long as the change is old, 20 ms at least and a second at most. It does nothing above READ COMMITTED: the snapshot
-- would be older than the locks.
-- Locks: the plan's row and what fq_follow_plans locks, all skip locked: it waits for none.
-- Index: fq_plan_pkey, fq_channel_plan_followers_ix, fq_channel_plan_pkey. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_spread_plans(p_queue text, p_limit integer, out followed integer, out due_in bigint)
language plpgsql
security definer
as $$
declare
  c_again constant bigint := 20000;
  c_longest constant bigint := 1000000;
  c_all constant bigint := 9223372036854775807;
  v_now bigint := fairqueue.fq_now();
  v_plan fairqueue.fq_plan;
  v_ids bigint[];
  v_last bigint;
  v_left bigint[];
  v_wait bigint;
  v_more boolean := false;
  v_visited boolean;
begin
  perform fairqueue.fq_check_grant(array['operator', 'consumer']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_spread_plans has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint);
  followed := 0;
  select n.* into v_plan
  from fairqueue.fq_plan n
  where n.queue = p_queue
    and current_setting('transaction_isolation') = 'read committed'
    and num_nonnulls(n.spread_after) = 1
    and n.spread_at <= v_now
  order by n.queue, n.name
  limit 1
  for no key update skip locked;
  if found then
    v_plan.spread_again := coalesce(v_plan.spread_again, '{}');
    if v_plan.spread_after < c_all then
      -- A new statement, whose snapshot is younger than the lock.
      select array_agg(o.channel_id) filter (where o.revision <> v_plan.revision), max(o.channel_id),
        count(*) = p_limit
      into v_ids, v_last, v_more
      from (
        select c.channel_id, c.revision
        from fairqueue.fq_channel_plan c
        where c.queue = p_queue
          and c.plan = v_plan.name
          and c.channel_id > v_plan.spread_after
        order by c.queue, c.plan, c.channel_id
        limit p_limit
      ) o;
    else
      v_ids := v_plan.spread_again[1:p_limit];
      v_plan.spread_again := v_plan.spread_again[p_limit + 1:];
    end if;
    if v_ids <> '{}' then
      select f.followed into followed
      from fairqueue.fq_follow_plans(p_queue, v_ids, false::boolean) f;
      if followed < cardinality(v_ids) then
        select array_agg(o.channel_id) into v_left
        from fairqueue.fq_channel_plan o
        where o.channel_id = any (v_ids)
          and o.plan = v_plan.name
          and o.revision <> v_plan.revision;
        v_plan.spread_again := v_plan.spread_again || v_left;
      end if;
    end if;
    v_wait := case when followed > 0 then c_again else v_now - v_plan.revision end;
    update fairqueue.fq_plan n
    set spread_after = case when v_more then v_last when v_plan.spread_again <> '{}' then c_all end,
      spread_again = case when v_plan.spread_again <> '{}' then v_plan.spread_again end,
      spread_at = case when v_more then 0 else v_now + least(greatest(v_wait, c_again), c_longest) end
    where n.queue = p_queue
      and n.name = v_plan.name;
  end if;
  v_visited := found;
  select min(
    greatest(
      n.spread_at - v_now,
      case when v_visited then 0 else least(greatest(v_now - n.revision, c_again), c_longest) end
    )
  )
  into due_in
  from fairqueue.fq_plan n
  where n.queue = p_queue
    and num_nonnulls(n.spread_after) = 1;
end
$$;
