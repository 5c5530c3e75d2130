-- fq_follow_plans: give channels of a queue the policy of the plan that they follow, where that has changed since they
-- got it; fields that are configured for a channel alone stay. followed: how many got it. deferred: how many must wait,
-- because their plan brings a first max_concurrency while another transaction has one of their leased messages locked,
-- which could not be counted; they are due again after as long as the change is old, 10 ms at least and a second at
-- most.
-- Guarantees: exact as fq_configure_channel: leased messages are counted when a channel gets a max_concurrency. Of the
-- channels that come to be ready earlier, a signal lets the next hearing find the first and those behind it.
-- Locks: state rows, then leased messages that hold no slot, all for no key update and skip locked: it waits for none.
-- Index: fq_channel_plan_pkey, fq_plan_pkey, fq_channel_state_newest_ix, fq_lease_expires_ix, fq_message_lease_ix; rows
-- by ctid. Errors: none.
create function fairqueue.fq_follow_plans(
  p_queue text, p_channel_ids bigint[], out followed integer, out deferred integer
)
language plpgsql
volatile
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
  v_now bigint := fairqueue.fq_now();
  v_states tid[];
  v_ids bigint[];
  v_plans text[];
  v_revisions bigint[];
  v_first boolean[];
  v_rows tid[];
  v_of bigint[];
  v_locked tid[];
  v_marks integer[];
begin
  deferred := 0;
  followed := 0;
  select array_agg(l.row), array_agg(l.channel_id), array_agg(l.plan), array_agg(l.revision), array_agg(l.first)
  into v_states, v_ids, v_plans, v_revisions, v_first
  from (
    select s.ctid as row, s.channel_id, stale.plan, stale.revision,
      s.max_concurrency is null and stale.limited as first
    from (
      select u.id, n.name as plan, n.revision,
        n.policy ->> 'max_concurrency' is not null and 'max_concurrency' <> all (o.overridden) as limited
      from unnest(p_channel_ids) u(id)
      cross join lateral (
        select c.plan, c.overridden, c.revision
        from fairqueue.fq_channel_plan c
        where c.channel_id = u.id
        limit 1
      ) o
      cross join lateral (
        select p.name, p.policy, p.revision
        from fairqueue.fq_plan p
        where p.queue = p_queue
          and p.name = o.plan
        limit 1
      ) n
      where n.revision <> o.revision
    ) stale
    cross join lateral (
      select c.ctid as row, c.row_version
      from fairqueue.fq_channel_state c
      where c.channel_id = stale.id
      order by c.channel_id desc, c.row_version desc
      limit 1
    ) newest
    join fairqueue.fq_channel_state s
      on s.ctid = newest.row
      and s.row_version is not distinct from newest.row_version
      and s.channel_id is not distinct from stale.id
    for no key update of s skip locked
  ) l;
  if v_states is null then
    return;
  end if;

  v_marks := array_fill(0, array[cardinality(v_ids)]);
  if true = any (v_first) then
    -- New statements, whose snapshots are younger than the locks of the states: nobody takes further messages.
    select array_agg(m.ctid), array_agg(u.ord)
    into v_rows, v_of
    from fairqueue.fq_lease e
    join fairqueue.fq_message m on m.lease_id = e.id
    join unnest(v_ids, v_first) with ordinality u(id, first, ord) on u.id = m.channel_id and u.first
    where e.queue = p_queue
      and m.slots & 1 = 0;
    select array_agg(l.row) into v_locked
    from (
      select m.ctid as row
      from unnest(v_rows) u(row)
      join fairqueue.fq_message m on m.ctid = u.row and num_nonnulls(m.lease_id) = 1
      for no key update of m skip locked
    ) l;
    -- A channel of which one could not be locked stays as it is for now.
    select array_agg(case when t.whole then t.messages else -1 end order by t.ord) into v_marks
    from (
      select i.ord, count(u.row)::integer as messages,
        count(u.row) = count(u.row) filter (where u.row = any (v_locked)) as whole
      from generate_series(1, cardinality(v_ids)) i(ord)
      left join unnest(v_rows, v_of) u(row, of) on u.of = i.ord
      group by i.ord
    ) t;
    update fairqueue.fq_message m
    set slots = m.slots | 1
    from unnest(v_rows, v_of) u(row, of)
    where m.ctid = u.row
      and v_marks[u.of] > 0;
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      next_dequeue_at = greatest(s.next_dequeue_at, v_now + least(greatest(v_now - u.revision, 10000), 1000000))
    from unnest(v_states, v_marks, v_revisions) u(row, marks, revision)
    where s.ctid = u.row
      and u.marks < 0
      and s.next_dequeue_at is not null;
    select count(*) into deferred
    from unnest(v_marks) u(marks)
    where u.marks < 0;
  end if;

  with plan as materialized (
    select n.name, p.max_concurrency, p.rate_interval, p.rate_burst, p.weight, p.max_backlog, p.drop_when_full,
      p.priority_aging
    from fairqueue.fq_plan n
    cross join lateral jsonb_populate_record(
      null::fairqueue.fq_channel_state, fairqueue.fq_changed_policy(n.policy::jsonb, null::jsonb)
    ) p
    where n.queue = p_queue
      and n.name = any (v_plans)
  ),
  wanted as materialized (
    select u.row, u.id, u.marks, u.revision, o.rate_at, o.next_dequeue_at as next_before,
      o.max_concurrency is null or o.current_concurrency < o.max_concurrency as served_before,
      case when 'max_concurrency' = any (c.overridden) then o.max_concurrency else p.max_concurrency end
        as max_concurrency,
      case when r.own then o.rate_interval else p.rate_interval end as rate_interval,
      case when r.own then o.rate_burst else p.rate_burst end as rate_burst,
      case when 'weight' = any (c.overridden) then o.weight else p.weight end as weight,
      case when 'max_backlog' = any (c.overridden) then o.max_backlog else p.max_backlog end as max_backlog,
      case when 'drop_when_full' = any (c.overridden) then o.drop_when_full else p.drop_when_full end
        as drop_when_full,
      case when 'priority_aging' = any (c.overridden) then o.priority_aging else p.priority_aging end
        as priority_aging
    from unnest(v_states, v_ids, v_plans, v_revisions, v_marks) u(row, id, plan, revision, marks)
    join fairqueue.fq_channel_state o on o.ctid = u.row
    join plan p on p.name = u.plan
    cross join lateral (
      select k.overridden
      from fairqueue.fq_channel_plan k
      where k.channel_id = u.id
      limit 1
    ) c
    cross join lateral (select 'rate_interval' = any (c.overridden) as own) r
    where u.marks >= 0
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
      current_concurrency = s.current_concurrency + w.marks,
      credit = least(s.credit, w.weight),
      rate_at = least(s.rate_at, v_now + w.rate_burst * w.rate_interval),
      next_dequeue_at = case
        when s.next_dequeue_at is null then null
        when s.next_dequeue_at <= v_now then greatest(s.next_dequeue_at, t.allowed_at)
        else greatest(s.head_dequeue_at, s.last_dequeue_at, t.allowed_at)
      end
    from wanted w
    cross join lateral (
      select fairqueue.fq_rate_allows_at(
        least(w.rate_at, v_now + w.rate_burst * w.rate_interval)::bigint, w.rate_interval::bigint,
        w.rate_burst::integer
      ) as allowed_at
    ) t
    where s.ctid = w.row
    returning s.channel_id, s.head_dequeue_at, s.head_message_id, s.next_dequeue_at,
      (w.max_concurrency is null or s.current_concurrency < w.max_concurrency)
        and (not w.served_before or s.next_dequeue_at < w.next_before) as freed
  ),
  noted as (
    update fairqueue.fq_channel_plan o
    set revision = w.revision
    from wanted w
    where o.channel_id = w.id
  ),
  signalled as (
    insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
    select p_queue, a.channel_id, a.head_dequeue_at, a.head_message_id
    from applied a
    where a.freed
      and a.next_dequeue_at is not null
    order by a.next_dequeue_at
    limit 1
  )
  select count(*) into followed
  from applied a;
end
$$;
