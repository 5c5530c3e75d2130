-- fq_make_group: make a group of messages of a queue, in the caller's transaction, with up to two follow-ups, in arrays
-- of one length: the one for its failure (p_on_failures true) and the other one, as fq_enqueue takes messages.
-- p_policy: the policy of their channels, if those are new by then and the queue has no defaults.
-- Guarantees: the group is open to this transaction, and from its commit on to its members alone. Members are messages
-- that fq_enqueue adds with the group in p_groups; fq_join_group counts them.
-- Locks: none. Index: fq_group_pkey. Errors: QF001 bad argument, or the id is taken; QF007.
create function fairqueue.fq_make_group(
  p_queue text, p_group_id uuid, p_on_failures boolean[], p_channels text[], p_kinds text[], p_contents bytea[],
  p_headers jsonb[], p_delays bigint[], p_ats bigint[], p_priorities integer[], p_keys text[], p_max_attempts integer[],
  p_ordering_keys text[], p_policy jsonb
)
returns void
language plpgsql
security definer
as $$
declare
  v_count integer := coalesce(cardinality(p_channels), 0);
  v_dims text := coalesce(array_dims(p_channels), '');
begin
  perform fairqueue.fq_check_grant(array['producer']::text[], p_queue, coalesce(p_channels, '{}'::text[])::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  perform fairqueue.fq_check_messages(
    p_channels, p_kinds, p_contents,
    array(
      select fairqueue.fq_group_headers(u.headers::jsonb, p_group_id, 0::bigint, 0::bigint, 0::bigint, 0::bigint)
      from unnest(p_headers) with ordinality u(headers, ord)
      order by u.ord
    )::jsonb[],
    p_delays, p_ats, p_priorities, p_keys, p_max_attempts, null::text[], null::integer[], null::uuid[],
    null::bigint[], null::boolean[], p_ordering_keys
  )
  where v_count > 0;
  -- The arrays must begin at 1: elements before that would be passed over.
  if p_group_id is null
    or v_dims not in ('', '[1:1]', '[1:2]')
    or concat(
      array_dims(p_on_failures), array_dims(p_kinds), array_dims(p_contents), array_dims(p_headers),
      array_dims(p_delays), array_dims(p_ats), array_dims(p_priorities), array_dims(p_keys), array_dims(p_max_attempts),
      array_dims(p_ordering_keys)
    ) <> repeat(v_dims, 10)
    or num_nulls(variadic p_on_failures) > 0
    or num_nulls(variadic p_max_attempts) > 0
    or (v_count = 2 and p_on_failures[1] = p_on_failures[2])
  then
    raise exception 'fq_make_group has a bad value'
      using errcode = 'QF001',
        hint = 'give an id, and up to two messages as fq_enqueue takes them, one of them for failures, in arrays of '
          'one length; headers of at most 65,000 bytes, for the counts are added';
  end if;
  insert into fairqueue.fq_group (group_id, queue, created_at)
  values (p_group_id, p_queue, fairqueue.fq_now())
  on conflict (group_id) do nothing;
  if not found then
    raise exception 'there is a group % already', p_group_id
      using errcode = 'QF001', hint = 'give each group an id of its own, a random one';
  end if;
  insert into fairqueue.fq_group_followup (
    group_id, on_failure, channel, kind, content, headers, delay, at, priority, key, max_attempts, ordering_key, policy
  )
  select p_group_id, u.*, p_policy
  from unnest(
    p_on_failures, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
    p_ordering_keys
  ) u;
end
$$;
