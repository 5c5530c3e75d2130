-- fq_check_messages: refuse messages that fq_enqueue cannot take, since arrays differ in length or a value is out of
-- its bounds. The error names the first such message, the argument and its value.
-- Guarantees: nothing is written. Locks: none. Index: none. Errors: QF001; QF011 for a content that is too long.
create function fairqueue.fq_check_messages(
  p_channels text[], p_kinds text[], p_contents bytea[], p_headers jsonb[], p_delays bigint[], p_ats bigint[],
  p_priorities integer[], p_keys text[], p_max_attempts integer[], p_on_duplicates text[], p_costs integer[],
  p_groups uuid[], p_unique_fors bigint[], p_from_ends boolean[], p_ordering_keys text[]
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
  v_wanted text;
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
    or cardinality(p_ordering_keys) <> v_count
  then
    raise exception 'the arrays of fq_enqueue differ in length'
      using errcode = 'QF001', hint = 'pass arrays of one length, with null where a message has no value';
  end if;

  select u.ord, bad.argument, bad.value, bad.wanted into v_ordinal, v_argument, v_value, v_wanted
  from unnest(
    p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts, p_on_duplicates,
    p_costs, p_unique_fors, p_ordering_keys
  )
    with ordinality u(
      channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, unique_for,
      ordering_key, ord
    )
  cross join lateral (
    select fairqueue.fq_bad_argument(
      u.channel::text, u.kind::text, u.content::bytea, u.headers::jsonb, u.delay::bigint, u.at::bigint,
      u.priority::integer, u.key::text, u.max_attempts::integer, u.on_duplicate::text, u.cost::integer,
      u.unique_for::bigint, u.ordering_key::text
    ) as argument
  ) first
  cross join lateral (
    values
      ('channel', fairqueue.fq_shown(u.channel::text), 'a channel of 1 to 512 bytes'),
      ('kind', fairqueue.fq_shown(u.kind::text), 'a kind of 1 to 512 bytes'),
      ('content', coalesce(octet_length(u.content) || ' bytes long', 'null'), 'a content of at most 256 MB'),
      (
        'headers', 'longer than 65,536 bytes',
        'headers of at most 65,536 bytes as text, where a number is written out'
      ),
      (
        'delay', u.delay || coalesce(', and at is ' || u.at, ''),
        'one of delay (0 to 100 years, in microseconds) and at'
      ),
      ('at', u.at::text, 'a time up to the year 9999, in microseconds since the epoch'),
      ('priority', u.priority::text, 'a priority >= 1'),
      ('key', fairqueue.fq_shown(u.key::text), 'a key of 1 to 512 bytes'),
      ('max_attempts', u.max_attempts::text, 'max_attempts >= 1'),
      (
        'on_duplicate', fairqueue.fq_shown(u.on_duplicate::text),
        'skip, raise or replace, or coalesce with an ordering_key and without a key'
      ),
      ('cost', u.cost::text, 'a cost of 1 to 1,000,000,000'),
      ('unique_for', u.unique_for::text, 'a period of 1 microsecond to 100 years'),
      ('ordering_key', fairqueue.fq_shown(u.ordering_key::text), 'an ordering key of 1 to 512 bytes')
  ) bad(argument, value, wanted)
  where first.argument is not null
    and bad.argument = first.argument
  order by u.ord
  limit 1;
  if found then
    raise exception 'message % of fq_enqueue has a bad value: % is %', v_ordinal, v_argument, v_value
      using errcode = case when v_argument = 'content' and v_value <> 'null' then 'QF011' else 'QF001' end,
        hint = 'give ' || v_wanted;
  end if;
end
$$;
