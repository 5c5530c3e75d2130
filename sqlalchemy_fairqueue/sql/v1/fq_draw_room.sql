-- fq_draw_room: how many of p_wanted messages the shared limits of a queue let its dequeue take now, which has p_out
-- out; null: another transaction has one of the limits.
-- Guarantees: what it returns may be taken in this transaction, and is written down by fq_draw: until it ends nobody
-- else draws from these limits. If a limit held a queue back, no other queue gets ahead of it by more than its own part
-- of that limit: two queues that always have messages get equal parts. What a queue does not use is for the others.
-- Slots of queues that nobody consumes any more are taken back; bad rows of theirs are set aside.
-- Locks: the states of the limits for no key update, and those of fq_reclaim, fq_lock_dispatcher, fq_set_leases_aside and fq_repair_queue, all skip locked: it
-- waits for none.
-- Index: fq_limit_pkey, fq_lease_expires_ix; those of fq_limit_members. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_draw_room(p_queue text, p_limits text[], p_wanted integer, p_out integer)
returns integer
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_held integer;
  v_room bigint := p_wanted;
  v_full text;
  v_abandoned text;
  v_row tid;
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
    return null;
  end if;

  -- New statements, which see what the last holder of the locks has written.
  for v_pass in 1..2 loop
    for r in
      select f.name,
        f.max_concurrency - m.messages_out as free,
        fairqueue.fq_rate_room(
          v_now, n.rate_at::bigint, f.rate_interval::bigint, f.rate_burst::integer
        ) as rate_room,
        case
          when f.max_concurrency is not null or f.rate_interval > 0 then
            m.others_tag - m.own_tag + greatest(1, coalesce(f.max_concurrency, f.rate_burst) / m.contenders)
        end as lead
      from unnest(p_limits) l(name)
      join fairqueue.fq_limit f on f.name = l.name
      cross join lateral (
        select s.rate_at
        from fairqueue.fq_limit_share s
        where s.limit_name = f.name
          and s.queue = ''
        order by s.limit_name desc, s.queue desc, s.row_version desc
        limit 1
      ) n
      cross join lateral (
        select sum(case when x.queue = p_queue then p_out else x.messages_out end) as messages_out,
          min(x.tag) filter (where x.queue = p_queue) as own_tag,
          min(x.tag) filter (where x.queue <> p_queue and x.contends_until > v_now) as others_tag,
          greatest(1, count(*) filter (where x.queue = p_queue or x.contends_until > v_now)) as contenders
        from fairqueue.fq_limit_members(f.name::text) x
      ) m
    loop
      v_room := least(v_room, r.free, r.rate_room, r.lead);
      v_full := case when r.free <= 0 then r.name end;
      exit when v_full is not null;
    end loop;
    exit when v_full is null or v_pass = 2;
    -- If nobody consumes a queue any more, its messages that are out, and its slots that signals free without being
    -- heard, would count for ever.
    for v_abandoned in
      select m.queue
      from fairqueue.fq_limit_members(v_full) m
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
        perform fairqueue.fq_reclaim(v_abandoned, 1000::integer);
        v_row := (fairqueue.fq_lock_dispatcher(v_abandoned)).row_id;
        -- Each is freed once: a later hearing finds it freed.
        with freeing as materialized (
          select g.ctid as row, g.queue_freed
          from fairqueue.fq_signal g
          where g.queue = v_abandoned
            and g.queue_freed > 0
            and v_row is not null
          limit 1000
          for update skip locked
        ),
        freed as (
          update fairqueue.fq_signal g
          set queue_freed = 0
          from freeing f
          where g.ctid = f.row
          returning f.queue_freed
        )
        update fairqueue.fq_queue_state q
        set row_version = q.row_version + 1,
          current_concurrency = q.current_concurrency - t.slots
        from (select sum(f.queue_freed) as slots from freed f) t
        where q.ctid = v_row
          and t.slots > 0;
      exception
        when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
          -- A bad row stops its own queue at most, whose consumers would set it aside.
          perform
          from fairqueue.fq_set_leases_aside(v_abandoned, v_now);
          perform fairqueue.fq_repair_queue(v_abandoned);
      end;
    end loop;
    v_room := p_wanted;
  end loop;
  return greatest(0, v_room);
end
$$;
