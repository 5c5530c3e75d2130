-- fq_repair_limits: try what a dequeue does with the limits of a queue, its own and the shared ones. Where that fails,
-- make their states anew: slots are counted, and what queues have drawn from a shared limit begins at 0 for all.
-- Returns the error of what failed. Null: nothing did, or somebody else has one of the rows locked.
-- Guarantees: what is tried is undone.
-- Locks: as fq_queue_room and fq_repair_queue, and the shares of the limits for no key update, all skip locked: it
-- waits for none.
-- Index: as fq_queue_room; fq_limit_share_newest_ix. Errors: none of the rows'.
create function fairqueue.fq_repair_limits(p_queue text)
returns text
language plpgsql
volatile
as $$
declare
  v_limits text[];
  v_states tid[];
  v_shares tid[];
  v_problem text;
  v_now bigint := fairqueue.fq_now();
  v_state fairqueue.fq_queue_state;
  v_drawn boolean;
  r record;
begin
  select q.limits into v_limits
  from fairqueue.fq_queue q
  where q.name = p_queue;
  begin
    select s.ctid as row, (s.*)::fairqueue.fq_queue_state as state into r
    from fairqueue.fq_queue_state s
    where s.queue = p_queue
    order by s.queue desc, s.row_version desc
    limit 1
    for no key update skip locked;
    if found then
      v_state := r.state;
      select m.is_drawn into v_drawn
      from fairqueue.fq_queue_room(p_queue, v_limits, 1::integer, v_state, v_now) m;
      v_state.current_concurrency := v_state.current_concurrency + 1;
      v_state.rate_at := greatest(v_state.rate_at, v_now) + v_state.rate_interval;
      perform fairqueue.fq_note(r.row::tid, v_state, v_now);
      if v_drawn then
        perform fairqueue.fq_draw(p_queue, v_limits, 1::integer, true::boolean);
      end if;
    end if;
    raise exception using errcode = 'QF099', message = 'it is undone';
  exception
    when sqlstate 'QF099' then
      return null;
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      v_problem := sqlerrm;
  end;

  select array_agg(l.row) into v_states
  from (
    select s.ctid as row
    from fairqueue.fq_limit_state s
    where s.limit_name = any (v_limits)
    for no key update skip locked
  ) l;
  select array_agg(l.row) into v_shares
  from (
    select s.ctid as row
    from fairqueue.fq_limit_share s
    where s.limit_name = any (v_limits)
    for no key update skip locked
  ) l;
  if cardinality(v_states) is distinct from cardinality(v_limits) or not fairqueue.fq_repair_queue(p_queue) then
    return null;
  end if;
  update fairqueue.fq_limit_state s
  set row_version = case when s.row_version between 0 and 4611686018427387903 then s.row_version + 1 else 0 end,
    rate_at = greatest(0, least(s.rate_at, fairqueue.fq_now())),
    virtual_time = 0
  where s.ctid = any (v_states);
  update fairqueue.fq_limit_share s
  set row_version = case when s.row_version between 0 and 4611686018427387903 then s.row_version + 1 else 0 end,
    tag = 0,
    contends_until = 0
  where s.ctid = any (v_shares);
  return v_problem;
end
$$;
