-- fq_check_messages: refuse messages that fq_enqueue cannot take: arrays that differ in length, or a value out of its
-- bounds; the first such message is named, with its values.
-- Guarantees: nothing is written. Locks: none. Index: none. Errors: QF001.
create function fairqueue.fq_check_messages(
  p_channels text[],
  p_kinds text[],
  p_contents bytea[],
  p_headers jsonb[],
  p_delays bigint[],
  p_ats bigint[],
  p_priorities integer[],
  p_keys text[],
  p_max_attempts integer[],
  p_on_duplicates text[],
  p_costs integer[],
  p_groups uuid[]
)
returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_count integer := cardinality(p_channels);
  v_bad integer;
begin
  if (cardinality(p_kinds), cardinality(p_contents), cardinality(p_delays), cardinality(p_ats),
      cardinality(p_priorities), cardinality(p_keys), cardinality(p_max_attempts))
     is distinct from (v_count, v_count, v_count, v_count, v_count, v_count, v_count)
    or (cardinality(p_headers) in (1, v_count)) is not true
    or cardinality(p_on_duplicates) <> v_count
    or cardinality(p_costs) <> v_count
    or cardinality(p_groups) not in (1, v_count)
  then
    raise exception 'the arrays of fq_enqueue differ in length'
      using errcode = 'QF001', hint = 'pass arrays of one length, with null where a message has no value';
  end if;

  select u.ord into v_bad
  from unnest(
    p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts, p_on_duplicates,
    p_costs
  )
    with ordinality u(channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, ord)
  where u.channel is null
    or u.content is null
    -- sent as text it is twice as long, and the server sends no more than a gigabyte: it could never be dequeued
    or octet_length(u.content) > 268435456
    or u.kind is null
    or octet_length(u.kind) not between 1 and 512
    or octet_length(u.key) not between 1 and 512
    or num_nonnulls(u.delay, u.at) > 1
    or u.delay not between 0 and 3153600000000000
    or u.priority < 1
    or u.at > 253402300799999999
    or (u.headers is not null and not fairqueue.fq_headers_fit(u.headers::jsonb))
    or u.max_attempts < 1
    or u.on_duplicate not in ('skip', 'raise', 'replace')
    or u.cost not between 1 and 1000000000
  order by u.ord
  limit 1;
  if found then
    raise exception 'message % of fq_enqueue has a bad value', v_bad
      using errcode = 'QF001',
        detail = format(
          'channel %L kind %L content of %s bytes headers that %s delay %s at %s priority %s key %L max_attempts %s '
          'on_duplicate %L cost %s',
          left(p_channels[v_bad], 80), left(p_kinds[v_bad], 80), coalesce(octet_length(p_contents[v_bad])::text, 'no'),
          case when fairqueue.fq_headers_fit(p_headers[v_bad]::jsonb) is false then 'are too long' else 'fit' end,
          coalesce(p_delays[v_bad]::text, 'null'), coalesce(p_ats[v_bad]::text, 'null'),
          coalesce(p_priorities[v_bad]::text, 'null'),
          left(p_keys[v_bad], 80), coalesce(p_max_attempts[v_bad]::text, 'null'), left(p_on_duplicates[v_bad], 80),
          coalesce(p_costs[v_bad]::text, 'null')
        ),
        hint = 'give a channel, a kind and a content of at most 256 MB; headers of at most 65,536 bytes as text, where '
          'a number is written out; a kind and a key of 1 to 512 bytes; one of delay (0 to 100 years) and at (up to '
          'the year 9999); priority >= 1; max_attempts >= 1; on_duplicate skip, raise or replace; a cost of 1 to '
          '1,000,000,000';
  end if;
end
$$;
