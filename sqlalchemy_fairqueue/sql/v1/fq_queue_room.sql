-- fq_queue_room: how many of p_limit messages the limits of a queue let a dequeue take now, which has the state of the
-- queue locked: its concurrency, its rate, its shared limits. The caller counts what it takes in the state, and by
-- fq_draw where is_drawn.
-- Guarantees: nobody else takes from these limits until the caller's transaction ends. room is null while another
-- transaction has a shared limit, or where the queue draws from other limits than p_limits, which the caller read
-- before.
-- Locks: the states of its shared limits for no key update, skip locked: it waits for none.
-- Index: fq_queue_pkey; those of fq_draw_room. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_queue_room(
  p_queue text, p_limits text[], p_limit integer, p_state fairqueue.fq_queue_state, p_now bigint,
  out room integer, out is_drawn boolean
)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  is_drawn := false;
  if p_limits is distinct from (
    select q.limits
    from fairqueue.fq_queue q
    where q.name = p_queue
  ) then
    -- A change that has not been committed yet has the row of the state, or waits for it.
    return;
  end if;
  room := greatest(
    0,
    least(
      p_limit,
      p_state.max_concurrency - p_state.current_concurrency,
      fairqueue.fq_rate_room(p_now, p_state.rate_at, p_state.rate_interval, p_state.rate_burst)
    )
  );
  if p_limits is not null and room > 0 then
    room := fairqueue.fq_draw_room(p_queue, p_limits, room, p_state.current_concurrency);
    is_drawn := room is not null;
  end if;
end
$$;
