-- fq_follow_plans: give channels of a queue the policy of the plan that they follow, where that has changed since they
-- got it; fields that are configured for a channel alone stay. followed: how many got it. deferred: how many must wait,
-- because their plan brings a first max_concurrency, see fq_begin_limits.
-- Guarantees: exact as fq_configure_channel: leased messages are counted when a channel gets a max_concurrency. A
-- channel that waits for a time leaves a signal, unless the caller attends to the queue and found it ready (p_hearer).
-- Locks: state rows, then what fq_begin_limits locks, all for no key update and skip locked: it waits for none.
-- Index: fq_channel_plan_pkey, fq_plan_pkey, fq_channel_state_newest_ix; rows by ctid. Errors: none.
create function fairqueue.fq_follow_plans(
  p_queue text, p_channel_ids bigint[], p_hearer boolean, out followed integer, out deferred integer
)
language plpgsql
volatile
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_ids bigint[] := p_channel_ids;
  v_followed integer;
begin
  followed := 0;
  deferred := 0;
  for v_pass in 1..2 loop
    -- One statement reads, locks and writes: to read a channel again after its lock takes a fifth more time. A state
    -- row that changed since the snapshot fails the join on row_version when PostgreSQL checks it again; the row in
    -- fq_channel_plan changes under the same lock.
    with asked as materialized (
      select u.id, k.row, k.plan, k.overridden, k.revision
      from unnest(v_ids) u(id)
      cross join lateral (
        select o.ctid as row, o.plan, o.overridden, o.revision
        from fairqueue.fq_channel_plan o
        where o.channel_id = u.id
        limit 1
      ) k
    ),
    plan as materialized (
      select n.name, n.revision, p.max_concurrency, p.rate_interval, p.rate_burst, p.weight, p.max_backlog,
        p.drop_when_full, p.priority_aging
      from fairqueue.fq_plan n
      cross join lateral jsonb_populate_record(
        null::fairqueue.fq_channel_state, fairqueue.fq_changed_policy(n.policy::jsonb, null::jsonb)
      ) p
      where n.queue = p_queue
        and n.name = any (
          array(
            select a.plan
            from asked a
          )
        )
    ),
    wanted as materialized (
      select o.ctid as row, c.row as noted, o.channel_id, p.revision, o.rate_at,
        o.head_dequeue_at, o.paused_at, o.current_concurrency,
        case when 'max_concurrency' = any (c.overridden) then o.max_concurrency else p.max_concurrency end
          as max_concurrency,
        o.max_concurrency is null and p.max_concurrency is not null and 'max_concurrency' <> all (c.overridden)
          as first,
        case when r.own then o.rate_interval else p.rate_interval end as rate_interval,
        case when r.own then o.rate_burst else p.rate_burst end as rate_burst,
        case when 'weight' = any (c.overridden) then o.weight else p.weight end as weight,
        case when 'max_backlog' = any (c.overridden) then o.max_backlog else p.max_backlog end as max_backlog,
        case when 'drop_when_full' = any (c.overridden) then o.drop_when_full else p.drop_when_full end
          as drop_when_full,
        case when 'priority_aging' = any (c.overridden) then o.priority_aging else p.priority_aging end
          as priority_aging
      from asked c
      join plan p on p.name = c.plan and p.revision <> c.revision
      cross join lateral (select 'rate_interval' = any (c.overridden) as own) r
      cross join lateral (
        select n.ctid as row, n.row_version
        from fairqueue.fq_channel_state n
        where n.channel_id = c.id
        order by n.channel_id desc, n.row_version desc
        limit 1
      ) newest
      join fairqueue.fq_channel_state o
        on o.ctid = newest.row
        and o.row_version is not distinct from newest.row_version
        and o.channel_id is not distinct from c.id
      for no key update of o skip locked
    ),
    applied as (
      update fairqueue.fq_channel_state s
      set row_version = s.row_version + 1,
        max_concurrency = w.max_concurrency,
        rate_interval = w.rate_interval,
        rate_burst = w.rate_burst,
        weight = w.weight,
        max_backlog = w.max_backlog,
        drop_when_full = w.drop_when_full,
        priority_aging = w.priority_aging,
        rate_at = least(s.rate_at, v_now + w.rate_burst * w.rate_interval),
        ready_tag = case when t.opens_at <= v_now then s.ready_tag end,
        due_at = case when s.ready_tag is null or t.opens_at > v_now then t.opens_at end
      from wanted w
      cross join lateral (
        select fairqueue.fq_opens_at(
          w.head_dequeue_at::bigint, w.paused_at::bigint, (w.current_concurrency < w.max_concurrency)::boolean,
          least(w.rate_at, v_now + w.rate_burst * w.rate_interval)::bigint, w.rate_interval::bigint,
          w.rate_burst::integer
        ) as opens_at
      ) t
      where s.ctid = w.row
        and not w.first
      returning s.channel_id, s.due_at
    ),
    noted as (
      update fairqueue.fq_channel_plan o
      set revision = w.revision
      from wanted w
      where o.ctid = w.noted
        and not w.first
    ),
    signalled as (
      insert into fairqueue.fq_signal (queue, channel_id)
      select p_queue, a.channel_id
      from applied a
      where a.due_at is not null
        and not p_hearer
    )
    select (select count(*) from applied a), array_agg(w.channel_id) filter (where w.first)
    into v_followed, v_ids
    from wanted w;
    followed := followed + v_followed;
    exit when v_ids is null or v_pass = 2;
    deferred := fairqueue.fq_begin_limits(p_queue, v_ids);
    if not p_hearer then
      insert into fairqueue.fq_signal (queue, channel_id)
      select p_queue, u.id
      from unnest(v_ids) u(id);
    end if;
  end loop;
end
$$;
