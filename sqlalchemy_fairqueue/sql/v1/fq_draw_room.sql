-- fq_draw_room: find out how many of p_wanted messages the shared limits of a queue let its dequeue take now (room;
-- null: another transaction has one of the limits), and of what cost, as fq_queue_room says. p_state: the dispatch row.
-- Guarantees: until the transaction ends nobody else draws from these limits. Of queues that a limit holds back, none
-- gets ahead of another by more than its own part, in messages or, if the limit's rate is in cost or it has a
-- max_cost_out, in cost: two queues that always have messages get equal parts. Others may use what a queue leaves.
-- Slots of queues that nobody consumes any more are taken back.
-- Locks: the states of the limits for no key update, and those of fq_attend, all skip locked: it waits for none.
-- Index: fq_limit_pkey, fq_lease_expires_ix; those of fq_limit_members and fq_attend. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_draw_room(
  p_queue text, p_limits text[], p_wanted integer, p_state fairqueue.fq_queue_state,
  out room integer, out rate_left bigint, out cost_left bigint, out first_left bigint
)
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_held integer;
  v_full text[];
  v_abandoned text;
  v_sight record;
  r record;
begin
  select count(*) into v_held
  from (
    select s.limit_name
    from unnest(p_limits) l(name)
    cross join lateral (
      select n.ctid as row, n.row_version
      from fairqueue.fq_limit_share n
      where n.limit_name = l.name
        and n.queue = ''
      order by n.limit_name desc, n.queue desc, n.row_version desc
      limit 1
    ) newest
    join fairqueue.fq_limit_share s on s.ctid = newest.row and s.row_version is not distinct from newest.row_version
    for no key update of s skip locked
  ) held;
  if v_held < cardinality(p_limits) then
    return;
  end if;

  -- New statements, which see what the last holder of the locks has written.
  for v_pass in 1..2 loop
    select p_wanted, null, null, null, '{}' into room, rate_left, cost_left, first_left, v_full;
    for r in
      select f.name,
        f.max_concurrency - m.messages_out as free, f.max_cost_out - m.cost_out as cost_free, m.cost_out, k.by_cost,
        f.rate_of,
        fairqueue.fq_rate_room(
          v_now, fairqueue.fq_rate_after(
            m.rate_at, (case when f.rate_of = 'cost' then p_state.owed_cost else 0 end)::bigint, f.rate_interval
          ), f.rate_interval, f.rate_burst
        ) as rate_room,
        case
          when num_nonnulls(f.max_concurrency, f.max_cost_out) > 0 or f.rate_interval > 0 then
            m.others_tag - m.own_tag + greatest(
              1, coalesce(case when k.by_cost then f.max_cost_out else f.max_concurrency end, f.rate_burst) / m.contenders
            )
        end as lead
      from unnest(p_limits) l(name)
      join fairqueue.fq_limit f on f.name = l.name
      cross join lateral (select f.rate_of = 'cost' or f.max_cost_out is not null as by_cost) k
      cross join lateral (
        select min(x.rate_at) as rate_at,
          sum(case when x.queue = p_queue then p_state.current_concurrency else x.messages_out end) as messages_out,
          sum(case when x.queue = p_queue then p_state.current_cost else x.cost_out end) as cost_out,
          min(x.tag) filter (where x.queue = p_queue) as own_tag,
          min(x.tag) filter (where x.queue <> p_queue and x.contends_until > v_now) as others_tag,
          greatest(1, count(*) filter (where x.queue = p_queue or x.contends_until > v_now)) as contenders
        from fairqueue.fq_limit_members(f.name::text) x
      ) m
    loop
      -- fq_fit_costs cuts by cost later. A lead in cost says only whether this queue goes now.
      room := greatest(
        0,
        least(
          room, r.free, case when r.rate_of = 'messages' or r.rate_room = 0 then r.rate_room end,
          case when not r.by_cost or r.lead <= 0 then r.lead end, case when r.cost_free <= 0 then 0 end
        )
      );
      rate_left := least(rate_left, case when r.rate_of = 'cost' then r.rate_room end);
      cost_left := least(cost_left, r.cost_free);
      first_left := least(first_left, case when r.cost_out > 0 then r.cost_free end);
      v_full := case when r.free <= 0 or r.cost_out > 0 and r.cost_free is not null then v_full || r.name else v_full end;
    end loop;
    exit when v_pass = 2 or cardinality(v_full) = 0;
    -- The messages of a queue that nobody consumes any more, and its slots that unheard signals free, would count for
    -- ever: attend to it.
    for v_abandoned in
      select m.queue
      from unnest(v_full) f(name)
      cross join lateral fairqueue.fq_limit_members(f.name) m
      where m.queue <> p_queue
        and m.messages_out > 0
        and not exists (
          select
          from fairqueue.fq_lease e
          where e.queue = m.queue
            and e.expires_at > v_now
        )
    loop
      begin
        v_sight := fairqueue.fq_look(v_abandoned, 0::integer, v_now);
        -- fq_spread_plans would ask for a grant of that queue.
        v_sight.has_plans := false;
        v_sight := fairqueue.fq_attend(v_abandoned, 0::integer, v_sight, v_now);
        if v_sight.must_note then
          perform fairqueue.fq_note(v_sight.dispatch_row::tid, v_sight.state::fairqueue.fq_queue_state, v_now);
        end if;
      exception
        when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
          -- A bad row of another queue must not stop this one.
          null;
      end;
    end loop;
  end loop;
end
$$;
