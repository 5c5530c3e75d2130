-- fq_queue_room: how many of p_limit messages the limits of a queue let a dequeue take now: its concurrency, its rate,
-- its shared limits. The caller counts what it takes in the row that state names, and by fq_draw where is_drawn.
-- Guarantees: nobody else takes from these limits until the caller's transaction ends. state is null, and room 0, while
-- another transaction has the row or a shared limit, or where the queue draws from other limits than p_limits, which
-- the caller read before.
-- Locks: the queue's state row and the states of its shared limits for no key update, skip locked: it waits for none.
-- Index: fq_queue_pkey, fq_queue_state_newest_ix; those of fq_draw_room. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_queue_room(
  p_queue text,
  p_limits text[],
  p_limit integer,
  p_now bigint,
  out state tid,
  out room integer,
  out rate_at bigint,
  out rate_interval bigint,
  out rate_burst integer,
  out is_drawn boolean
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
#variable_conflict use_column
declare
  v_changed boolean;
  v_drawn integer;
begin
  select s.ctid,
    greatest(
      0,
      least(
        p_limit,
        s.max_concurrency - s.current_concurrency,
        fairqueue.fq_rate_room(p_now, s.rate_at, s.rate_interval, s.rate_burst)
      )
    ),
    s.rate_at, s.rate_interval, s.rate_burst,
    (
      select q.limits is distinct from p_limits
      from fairqueue.fq_queue q
      where q.name = p_queue
    )
  into state, room, rate_at, rate_interval, rate_burst, v_changed
  from (
    select n.ctid as row, n.row_version
    from fairqueue.fq_queue_state n
    where n.queue = p_queue
    order by n.queue desc, n.row_version desc
    limit 1
  ) newest
  join fairqueue.fq_queue_state s on s.ctid = newest.row and s.row_version is not distinct from newest.row_version
  for no key update of s skip locked;
  is_drawn := false;
  if v_changed then
    -- A change that has not been committed yet has the row that is locked here, or waits for it.
    state := null;
  elsif p_limits is not null and room > 0 then
    v_drawn := fairqueue.fq_draw_room(p_queue, p_limits, room::integer);
    is_drawn := v_drawn is not null;
    if is_drawn then
      room := v_drawn;
    else
      state := null;
    end if;
  end if;
  if state is null then
    room := 0;
  end if;
end
$$;
