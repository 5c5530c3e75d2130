-- fq_queue_room: how many of p_limit messages the limits of a queue let a dequeue take now: its concurrency, its rate,
-- its shared limits. p_sight: of fq_attend; who does not have the state of the queue locked takes nothing, and room says
-- whether it could. The caller counts what it takes in the state, and by fq_draw if is_drawn.
-- Guarantees: nobody else takes from these limits until the caller's transaction ends. room is null while another
-- transaction has the state or a shared limit, or if the queue draws from other limits than the caller read before.
-- Locks: the states of its shared limits for no key update, skip locked: it waits for none.
-- Index: fq_queue_pkey; those of fq_draw_room. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_queue_room(
  p_queue text, p_limit integer, p_sight record, p_now bigint,
  out room integer, out is_drawn boolean
)
language plpgsql
as $$
declare
  v_state fairqueue.fq_queue_state := p_sight.state;
begin
  is_drawn := false;
  if p_sight.row_id is null then
    room := case
      when not p_sight.has_work and p_sight.first_tag is null then
        greatest(0, least(p_limit, v_state.max_concurrency - v_state.current_concurrency))
    end;
    return;
  end if;
  if p_sight.limits is distinct from (
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
      v_state.max_concurrency - v_state.current_concurrency,
      fairqueue.fq_rate_room(p_now, v_state.rate_at, v_state.rate_interval, v_state.rate_burst)
    )
  );
  if p_sight.limits is not null and room > 0 then
    room := fairqueue.fq_draw_room(p_queue, p_sight.limits::text[], room, v_state.current_concurrency);
    is_drawn := room is not null;
  end if;
end
$$;
