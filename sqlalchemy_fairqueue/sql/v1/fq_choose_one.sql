-- fq_choose_one: the first ready channel of a queue that nobody has locked, from the floor of p_state on and up to the
-- bound (null: any tag): its row, its id, whether it has a limit, its head. p_settings: of the queue; p_hearer: whether
-- the caller attends to it. state null: there is none; followed: the channel was brought to its plan, look again.
-- Guarantees: until the transaction ends nobody else serves the channel. A row that changed since the snapshot fails the
-- join on row_version when PostgreSQL checks it again, since its place changed too. ("is not distinct from" is no index
-- condition, so the planner reaches rows by ctid and never by an index.)
-- Locks: the state row, for no key update, skip locked. Index: fq_channel_state_ready_ix; rows by ctid. Errors: none.
create function fairqueue.fq_choose_one(
  p_queue text, p_settings fairqueue.fq_queue, p_state fairqueue.fq_queue_state, p_bound bigint, p_hearer boolean,
  p_now bigint,
  out state tid, out channel_id bigint, out is_limited boolean, out head_at bigint, out head_id bigint,
  out followed boolean
)
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  select s.ctid, s.channel_id, s.max_concurrency is not null, s.head_dequeue_at, s.head_message_id
  into state, channel_id, is_limited, head_at, head_id
  from fairqueue.fq_ready_channels(p_queue, p_state.ready_floor, p_state.ready_channel, p_now) ready
  join fairqueue.fq_channel_state s
    on s.ctid = ready.state
    and s.row_version is not distinct from ready.row_version
    and s.channel_id is not distinct from ready.channel_id
  where ready.tag <= coalesce(p_bound, -1)
  order by ready.tag, ready.channel_id
  limit 1
  for no key update of s skip locked;
  followed := false;
  if found and p_settings.plans then
    select f.followed + f.deferred > 0 into followed
    from fairqueue.fq_follow_plans(p_queue, array[channel_id]::bigint[], p_hearer) f;
  end if;
end
$$;
