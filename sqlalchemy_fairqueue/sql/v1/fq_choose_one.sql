-- fq_choose_one: lock the first ready channel of a queue that nobody has locked and that stands at bound_tag of p_sight
-- or before (null: anywhere). Returns its row and its state. is_limited: its messages hold a slot of it; is_metered: a
-- quota in cost may hold it back; followed: it got the changed values of its plan just now: choose again; null: none is
-- ready.
-- Guarantees: until the transaction ends nobody else serves the channel. If its row changed after the snapshot, its
-- place in the ready order may have changed, too: PostgreSQL checks the join on row_version again once it has the lock,
-- and the row drops out. ("is not distinct from" is no index condition, so the planner reaches rows by ctid, never by
-- an index.)
-- Locks: the state row, for no key update, skip locked. Index: fq_channel_state_ready_ix; rows by ctid. Errors: none.
create function fairqueue.fq_choose_one(p_queue text, p_sight record, p_now bigint)
returns record
language plpgsql
as $$
declare
  v_state fairqueue.fq_queue_state := p_sight.state;
  v_chosen record;
begin
  select s.ctid as row, false as followed, num_nonnulls(s.max_concurrency, s.max_cost_out) > 0 as is_limited,
    num_nonnulls(s.max_cost_out) > 0 or s.rate_of = 'cost' as is_metered, s as state
  into v_chosen
  from fairqueue.fq_ready_channels(p_queue, v_state.ready_floor, v_state.ready_channel, p_now) ready
  join fairqueue.fq_channel_state s
    on s.ctid = ready.state_row
    and s.row_version is not distinct from ready.row_version
    and s.channel_id is not distinct from ready.channel_id
  where ready.tag <= coalesce(p_sight.bound_tag, -1)
  order by ready.tag, ready.channel_id
  limit 1
  for no key update of s skip locked;
  if p_sight.plans and (v_chosen.state).channel_id is not null then
    select f.followed + f.deferred > 0 into v_chosen.followed
    from fairqueue.fq_follow_plans(
      p_queue, array[(v_chosen.state).channel_id]::bigint[], (p_sight.dispatch_row is not null)::boolean
    ) f;
  end if;
  return v_chosen;
end
$$;
