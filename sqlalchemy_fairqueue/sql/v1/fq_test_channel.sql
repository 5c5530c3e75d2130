-- fq_test_channel: why a dequeue at p_now cannot update the state of a channel: a value that is out of bounds, or the
-- error; null: nothing is wrong with it.
-- Guarantees: it changes nothing.
-- Locks: only the row, which the caller holds. Index: fq_channel_state_newest_ix. Errors: none of the row's.
create function fairqueue.fq_test_channel(p_channel_id bigint, p_now bigint)
returns text
language plpgsql
volatile
as $$
declare
  v_reason text;
begin
  select string_agg(format('%s %s', w.name, w.value), ', ') into v_reason
  from fairqueue.fq_channel_state s
  cross join lateral (
    values ('weight', s.weight::bigint, s.weight between 1 and 10000),
      ('max_concurrency', s.max_concurrency, (s.max_concurrency >= 1) is not false),
      ('current_concurrency', s.current_concurrency, s.current_concurrency >= 0),
      ('rate_interval', s.rate_interval, s.rate_interval between 0 and 31536000000000),
      ('rate_burst', s.rate_burst, s.rate_burst between 1 and 1000000),
      ('rate_at', s.rate_at, s.rate_at between 0 and p_now + 63072000000000),
      ('tag', s.tag, (s.tag between -9000000000000000000 and -1) is not false),
      ('tag_rest', s.tag_rest, (abs(s.tag_rest) <= 1000000000000000000) is not false),
      (
        'next_dequeue_at', s.next_dequeue_at,
        (s.next_dequeue_at >= 0) is not false or s.next_dequeue_at is not distinct from s.tag
      ),
      ('backlog', s.backlog, s.backlog between -4611686018427387904 and 4611686018427387904)
  ) w (name, value, is_good)
  where s.channel_id = p_channel_id
    and not w.is_good;
  if v_reason is null and (
    select count(*)
    from fairqueue.fq_channel_state s
    where s.channel_id = p_channel_id
  ) > 1 then
    v_reason := 'it has several state rows';
  end if;
  if v_reason is not null then
    return v_reason;
  end if;
  perform fairqueue.fq_charge(
    s.queue, array[s.ctid]::tid[], array[1]::integer[], array[1]::bigint[], array[p_now]::bigint[],
    array[s.head_message_id]::bigint[], p_now, null::fairqueue.fq_queue_state,
    true::boolean
  )
  from fairqueue.fq_channel_state s
  where s.channel_id = p_channel_id;
  raise exception using errcode = 'QF099', message = 'it is undone';
exception
  when sqlstate 'QF099' then
    return null;
  when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
    return sqlerrm;
end
$$;
