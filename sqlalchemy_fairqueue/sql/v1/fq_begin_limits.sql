-- fq_begin_limits: give channels that have no limit the max_concurrency and max_cost_out of their plan, and count their
-- leased messages, which hold a slot from now on. If another transaction has a leased message of a channel locked, it
-- cannot be counted, and the channel must wait: it is due again after the time that has passed since the plan changed,
-- 10 ms at least and a second at most. Returns how many must wait.
-- Guarantees: exact as fq_configure_channel: its caller has locked the state rows, so nobody takes further messages.
-- Locks: leased messages that hold no slot, for no key update and skip locked: it waits for none.
-- Index: fq_channel_state_newest_ix, fq_channel_plan_pkey, fq_plan_pkey, fq_lease_expires_ix, fq_message_lease_ix; rows
-- by ctid. Errors: none.
create function fairqueue.fq_begin_limits(p_queue text, p_channel_ids bigint[])
returns integer
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_rows tid[];
  v_of bigint[];
  v_locked tid[];
  v_marks integer[];
  v_costs bigint[];
begin
  select array_agg(m.ctid), array_agg(u.ord), array_agg(fairqueue.fq_charged(m.charged, m.cost::integer))
  into v_rows, v_of, v_costs
  from fairqueue.fq_lease e
  join fairqueue.fq_message m on m.lease_id = e.id
  join unnest(p_channel_ids) with ordinality u(id, ord) on u.id = m.channel_id
  where e.queue = p_queue
    and m.slots & 1 = 0;
  select array_agg(l.row) into v_locked
  from (
    select m.ctid as row
    from unnest(v_rows) u(row)
    join fairqueue.fq_message m on m.ctid = u.row and num_nonnulls(m.lease_id) = 1
    for no key update of m skip locked
  ) l;
  -- A channel with a message that could not be locked stays as it is for now.
  select array_agg(case when t.whole then t.messages else -1 end order by t.ord) into v_marks
  from (
    select i.ord, count(u.row)::integer as messages,
      count(u.row) = count(u.row) filter (where u.row = any (v_locked)) as whole
    from generate_series(1, cardinality(p_channel_ids)) i(ord)
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
    max_concurrency = case when w.marks >= 0 then w.max_concurrency end,
    max_cost_out = case when w.marks >= 0 then w.max_cost_out end,
    current_concurrency = s.current_concurrency + greatest(w.marks, 0),
    current_cost = s.current_cost + case when w.marks >= 0 then w.cost else 0 end,
    ready_tag = case when w.has_room is not false and w.marks >= 0 then s.ready_tag end,
    due_at = case
      when w.marks < 0 then greatest(s.due_at, v_now + least(greatest(v_now - w.revision, 10000), 1000000))
      when w.has_room is not false then s.due_at
    end
  from (
    select newest.row, u.marks, t.cost, n.max_concurrency, n.max_cost_out, n.revision,
      fairqueue.fq_has_room(
        n.max_concurrency, (newest.current_concurrency + u.marks)::bigint, n.max_cost_out,
        (newest.current_cost + t.cost)::bigint
      ) as has_room
    from unnest(p_channel_ids, v_marks) with ordinality u(id, marks, ord)
    cross join lateral (
      select coalesce(sum(x.cost), 0)::bigint as cost
      from unnest(v_of, v_costs) x(of, cost)
      where x.of = u.ord
    ) t
    cross join lateral (
      select c.ctid as row, c.current_concurrency, c.current_cost
      from fairqueue.fq_channel_state c
      where c.channel_id = u.id
      order by c.channel_id desc, c.row_version desc
      limit 1
    ) newest
    cross join lateral (
      select ((p.policy - o.overridden) ->> 'max_concurrency')::integer as max_concurrency,
        ((p.policy - o.overridden) ->> 'max_cost_out')::integer as max_cost_out, p.revision
      from fairqueue.fq_channel_plan o
      join fairqueue.fq_plan p on p.queue = p_queue and p.name = o.plan
      where o.channel_id = u.id
      limit 1
    ) n
  ) w
  where s.ctid = w.row
    and (w.marks >= 0 or num_nonnulls(s.ready_tag, s.due_at) > 0);
  return (
    select count(*)
    from unnest(v_marks) u(marks)
    where u.marks < 0
  );
end
$$;
