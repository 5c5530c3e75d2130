-- fq_check_messages: refuse messages that fq_enqueue cannot take: arrays that differ in length, or a value out of its
-- bounds; the first such message is named, with the argument and its value.
-- Guarantees: nothing is written. Locks: none. Index: none. Errors: QF001.
create function fairqueue.fq_check_messages(
  p_channels text[], p_kinds text[], p_contents bytea[], p_headers jsonb[], p_delays bigint[], p_ats bigint[],
  p_priorities integer[], p_keys text[], p_max_attempts integer[], p_on_duplicates text[], p_costs integer[],
  p_groups uuid[], p_unique_fors bigint[], p_from_ends boolean[]
)
returns void
language plpgsql
stable
as $$
declare
  v_count integer := cardinality(p_channels);
  v_ordinal bigint;
  v_argument text;
  v_value text;
begin
  if (cardinality(p_kinds), cardinality(p_contents), cardinality(p_delays), cardinality(p_ats),
      cardinality(p_priorities), cardinality(p_keys), cardinality(p_max_attempts))
     is distinct from (v_count, v_count, v_count, v_count, v_count, v_count, v_count)
    or (cardinality(p_headers) in (1, v_count)) is not true
    or cardinality(p_on_duplicates) <> v_count
    or cardinality(p_costs) <> v_count
    or cardinality(p_groups) not in (1, v_count)
    or cardinality(p_unique_fors) <> v_count
    or cardinality(p_from_ends) <> v_count
  then
    raise exception 'the arrays of fq_enqueue differ in length'
      using errcode = 'QF001', hint = 'pass arrays of one length, with null where a message has no value';
  end if;

  select u.ord, bad.argument,
    case bad.argument
      when 'channel' then fairqueue.fq_shown(u.channel::text)
      when 'kind' then fairqueue.fq_shown(u.kind::text)
      when 'content' then coalesce(octet_length(u.content) || ' bytes long', 'null')
      when 'headers' then 'longer than 65,536 bytes'
      when 'delay' then u.delay || coalesce(', and at is ' || u.at, '')
      when 'at' then u.at::text
      when 'priority' then u.priority::text
      when 'key' then fairqueue.fq_shown(u.key::text)
      when 'max_attempts' then u.max_attempts::text
      when 'on_duplicate' then fairqueue.fq_shown(u.on_duplicate::text)
      when 'cost' then u.cost::text
      when 'unique_for' then u.unique_for::text
    end
  into v_ordinal, v_argument, v_value
  from unnest(
    p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts, p_on_duplicates,
    p_costs, p_unique_fors
  )
    with ordinality u(
      channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, unique_for, ord
    )
  cross join lateral (
    select fairqueue.fq_bad_argument(
      u.channel::text, u.kind::text, u.content::bytea, u.headers::jsonb, u.delay::bigint, u.at::bigint,
      u.priority::integer, u.key::text, u.max_attempts::integer, u.on_duplicate::text, u.cost::integer,
      u.unique_for::bigint
    ) as argument
  ) bad
  where bad.argument is not null
  order by u.ord
  limit 1;
  if found then
    raise exception 'message % of fq_enqueue has a bad value: % is %', v_ordinal, v_argument, v_value
      using errcode = 'QF001',
        hint = case v_argument
          when 'content' then 'give a content of at most 256 MB'
          when 'headers' then 'give headers of at most 65,536 bytes as text, where a number is written out'
          when 'delay' then 'give one of delay (0 to 100 years, in microseconds) and at'
          when 'at' then 'give a time up to the year 9999, in microseconds since the epoch'
          when 'on_duplicate' then 'give skip, raise or replace'
          when 'cost' then 'give a cost of 1 to 1,000,000,000'
          when 'priority' then 'give a priority >= 1'
          when 'max_attempts' then 'give max_attempts >= 1'
          when 'unique_for' then 'give a period of 1 microsecond to 100 years'
          else format('give a %s of 1 to 512 bytes', v_argument)
        end;
  end if;
end
$$;
