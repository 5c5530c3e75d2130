-- fq_enqueue_one: add one message, in the caller's transaction: fq_enqueue with names and defaults, for triggers and
-- other code in SQL. Returns the message's id, or with p_on_duplicate replace that of the message that was rewritten.
-- Null: none was added, since its key is taken (p_on_duplicate skip), or its channel is full and drops messages.
-- p_payload: as JsonCodec reads it, the default codec of a queue; p_kind: as the handler is declared. p_max_attempts
-- null: 20. p_notify: wake waiting consumers (not in a two-phase transaction). p_unique_for: how long the key stays
-- taken, from the 'enqueue' or the 'completion' of the message on (p_unique_from); null: while it lives.
-- Guarantees, locks, index: as fq_enqueue.
-- Errors: QF001 bad argument, with its name and value; QF005 the channel is full; 23505 the key is taken, and
-- p_on_duplicate is raise; as fq_enqueue.
create function fairqueue.fq_enqueue_one(
  p_queue text, p_channel text, p_payload jsonb, p_kind text default 'default', p_key text default null,
  p_on_duplicate text default 'skip', p_delay interval default null, p_at timestamptz default null,
  p_priority integer default null, p_cost integer default null, p_headers jsonb default null,
  p_max_attempts integer default null, p_notify boolean default true, p_unique_for interval default null,
  p_unique_from text default 'enqueue', p_ordering_key text default null
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- arguments that fq_enqueue would name otherwise, or not refuse
  v_argument text := case
    when p_payload is null then 'payload'
    when extract(epoch from p_delay) not between 0 and 3153600000 then 'delay'
    when not isfinite(p_at) or extract(epoch from p_at) >= 253402300800 then 'at'
    when jsonb_typeof(p_headers) <> 'object' then 'headers'
    when extract(epoch from p_unique_for) not between 0.000001 and 3153600000 then 'unique_for'
    when (p_unique_from in ('enqueue', 'completion')) is not true then 'unique_from'
    when (p_on_duplicate in ('raise', 'replace') or p_unique_for is not null) and p_key is null then 'key'
  end;
  v_value text;
  v_wanted text;
  v_message_id bigint;
  v_outcome text;
begin
  if v_argument is not null then
    select b.value, b.wanted into v_value, v_wanted
    from (
      values
        ('payload', null, 'JSON, such as to_jsonb(new); ''null''::jsonb is a null of JSON'),
        ('delay', p_delay::text, 'an interval of 0 to 36,500 days'),
        ('at', p_at::text, 'a time up to the year 9999'),
        ('headers', p_headers::text, 'a JSON object'),
        ('unique_for', p_unique_for::text, 'an interval of 1 microsecond to 36,500 days'),
        ('unique_from', p_unique_from, 'enqueue or completion'),
        ('key', null, 'a key, or leave on_duplicate and unique_for out: nothing is a duplicate without a key')
    ) b(argument, value, wanted)
    where b.argument = v_argument;
    raise exception 'fq_enqueue_one has a bad value: % is %', v_argument, fairqueue.fq_shown(v_value)
      using errcode = 'QF001', hint = 'give ' || v_wanted;
  end if;
  select e.message_id, e.outcome into v_message_id, v_outcome
  from fairqueue.fq_enqueue(
    p_queue, array[p_channel]::text[], array[p_kind]::text[], array[convert_to(p_payload::text, 'UTF8')]::bytea[],
    array[p_headers]::jsonb[], array[extract(epoch from p_delay) * 1000000]::bigint[],
    array[extract(epoch from p_at) * 1000000]::bigint[], array[p_priority]::integer[], array[p_key]::text[],
    array[p_max_attempts]::integer[], null::jsonb, array[p_on_duplicate]::text[], p_notify, null::bigint[],
    array[p_cost]::integer[], null::uuid[], array[extract(epoch from p_unique_for) * 1000000]::bigint[],
    array[p_unique_from = 'completion']::boolean[], false::boolean, array[p_ordering_key]::text[]
  ) e;
  if v_outcome = 'full' then
    raise exception 'channel % of queue % is full', fairqueue.fq_shown(p_channel), fairqueue.fq_shown(p_queue)
      using errcode = 'QF005',
        hint = 'enqueue it again when consumers have taken messages, or configure another max_backlog of the channel';
  end if;
  if v_outcome = 'duplicate' and p_on_duplicate = 'raise' then
    raise exception 'key % stands in channel % of queue %: message % holds it', fairqueue.fq_shown(p_key),
      fairqueue.fq_shown(p_channel), fairqueue.fq_shown(p_queue), v_message_id
      using errcode = '23505', hint = 'give on_duplicate skip to leave that message, or replace to rewrite it';
  end if;
  return case when v_outcome in ('created', 'replaced') then v_message_id end;
end
$$;
