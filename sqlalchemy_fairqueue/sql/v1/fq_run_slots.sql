-- fq_run_slots: run slots of a schedule, in the caller's transaction, which should end at once: a row in
-- fq_schedule_slot and a message for each. p_revision, p_done_until: as fq_due_schedules returned them. p_slots: in
-- order; p_until: all up to then are done; p_next: the slot after it (null: none). Returns a row a slot; message_id
-- null: its channel is full and drops. One row of nulls: none was to be run. No row: nothing was done.
-- Guarantees: a slot is run once, whoever calls this. Nothing is done if another call was first or has the row, if the
-- schedule was changed, paused or removed meanwhile, or if p_until is later than the clock. A message is delivered at
-- its slot plus a share of the jitter, which the slot decides.
-- Locks: what fq_make_channels locks, 100 ms at most; then the schedule's row, skip locked, and nothing that waits.
-- Index: fq_schedule_pkey, fq_schedule_slot_pkey. Errors: QF001; QF005; 55P03 another transaction makes the channel; as
-- fq_enqueue.
create function fairqueue.fq_run_slots(
  p_id bigint, p_revision bigint, p_done_until bigint, p_slots bigint[], p_until bigint, p_next bigint, p_notify boolean
)
returns table (slot_at bigint, message_id bigint)
language plpgsql
security definer
set lock_timeout = '100ms'
as $$
declare
  c_day constant bigint := 86400000000;
  v_now bigint := fairqueue.fq_now();
  v_schedule fairqueue.fq_schedule;
  v_slots bigint[];
  v_ids bigint[];
  v_full boolean;
  v_count integer;
begin
  select s.* into v_schedule
  from fairqueue.fq_schedule s
  where s.id = p_id;
  if not found then
    return;
  end if;
  perform fairqueue.fq_check_grant(array['consumer']::text[], v_schedule.queue, null::text[]);
  if (p_until >= p_done_until) is not true
    or p_next <= p_until
    or array_position(p_slots, null) > 0
    or p_done_until >= any (p_slots)
    or p_until < any (p_slots)
  then
    raise exception 'schedule % has slots that are not between % and %',
      p_id, coalesce(p_done_until::text, 'null'), coalesce(p_until::text, 'null')
      using errcode = 'QF001',
        detail = format('next %s clock %s', coalesce(p_next::text, 'null'), v_now),
        hint = 'run slots after p_done_until and up to p_until; p_next is later';
  end if;
  if p_until > v_now then
    return;
  end if;
  perform fairqueue.fq_channel_room(v_schedule.queue, v_schedule.channel, v_schedule.policy)
  where p_slots <> '{}';
  select s.* into v_schedule
  from fairqueue.fq_schedule s
  where s.id = p_id
    and s.revision = p_revision
    and s.done_until = p_done_until
    and num_nulls(s.paused_at) = 1
  for no key update skip locked;
  if not found then
    return;
  end if;
  with added as (
    insert into fairqueue.fq_schedule_slot as t (schedule_id, slot_at, ran_at)
    select p_id, u.at, v_now
    from unnest(p_slots) u(at)
    on conflict (schedule_id, slot_at) do nothing
    returning t.slot_at
  )
  select array_agg(a.slot_at order by a.slot_at) into v_slots
  from added a;
  v_count := coalesce(cardinality(v_slots), 0);
  if v_count > 0 then
    select array_agg(e.message_id order by e.ordinal), bool_or(e.outcome = 'full')
    into v_ids, v_full
    from fairqueue.fq_enqueue(
      v_schedule.queue, array_fill(v_schedule.channel, array[v_count])::text[],
      array_fill(v_schedule.kind, array[v_count])::text[], array_fill(v_schedule.content, array[v_count])::bytea[],
      array(
        select fairqueue.fq_schedule_headers(v_schedule.headers, v_schedule.name, u.at::bigint)
        from unnest(v_slots) with ordinality u(at, ord)
        order by u.ord
      )::jsonb[],
      array_fill(null::bigint, array[v_count])::bigint[],
      array(
        select u.at + (hashint8extended(u.at, p_id) & 9223372036854775807) % (v_schedule.jitter + 1)
        from unnest(v_slots) with ordinality u(at, ord)
        order by u.ord
      )::bigint[],
      array_fill(null::integer, array[v_count])::integer[], array_fill(null::text, array[v_count])::text[],
      array_fill(v_schedule.max_attempts, array[v_count])::integer[], v_schedule.policy, null::text[], p_notify,
      null::bigint[], null::integer[], null::uuid[], null::bigint[], null::boolean[], false::boolean,
      array_fill(v_schedule.ordering_key, array[v_count])::text[]
    ) e;
    if v_full then
      raise exception 'channel % of queue % is full',
        quote_literal(left(v_schedule.channel, 80)), quote_literal(left(v_schedule.queue, 80))
        using errcode = 'QF005',
          hint = 'its slots are tried again; let consumers take messages, or configure another max_backlog';
    end if;
    update fairqueue.fq_schedule_slot t
    set message_id = u.message_id
    from unnest(v_slots, v_ids) u(at, message_id)
    where t.schedule_id = p_id
      and t.slot_at = u.at;
  end if;
  update fairqueue.fq_schedule s
  set done_until = p_until,
    next_at = p_next,
    -- A worker looks at it at least daily: another version of the time zones may move the slot.
    due_at = least(p_next, v_now + c_day),
    last_slot_at = coalesce(v_slots[v_count], s.last_slot_at),
    last_run_at = case when v_count > 0 then v_now else s.last_run_at end,
    last_message_id = coalesce(v_ids[v_count], s.last_message_id),
    problem = null,
    problem_at = null
  where s.id = p_id;
  return query
  select u.at, u.message_id
  from unnest(v_slots, v_ids) u(at, message_id);
  if v_count = 0 then
    return next;
  end if;
end
$$;
