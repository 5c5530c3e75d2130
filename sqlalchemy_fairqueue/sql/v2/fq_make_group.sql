-- fq_make_group: make a group of messages of a queue, in the caller's transaction, with the messages that may follow
-- it, in arrays of one length: the one for its failure (p_on_failures true) and the other one, as fq_enqueue takes
-- them. p_policy: the policy of their channels, if those are new by then and the queue has no defaults.
-- Guarantees: the group is open to this transaction, and from its commit to its members alone. Its members are what
-- fq_enqueue adds with it as p_groups; fq_join_group counts them.
-- Locks: none. Index: fq_group_pkey. Errors: QF001 bad argument, or the id is taken; QF007.
create function fairqueue.fq_make_group(
  p_queue text,
  p_group_id uuid,
  p_on_failures boolean[],
  p_channels text[],
  p_kinds text[],
  p_contents bytea[],
  p_headers jsonb[],
  p_delays bigint[],
  p_ats bigint[],
  p_priorities integer[],
  p_keys text[],
  p_max_attempts integer[],
  p_policy jsonb
)
returns void
language plpgsql
volatile
security definer
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
  v_count integer := coalesce(cardinality(p_channels), 0);
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(
      array['producer']::text[], p_queue, coalesce(p_channels, '{}'::text[])::text[]
    )
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  perform fairqueue.fq_check_names((array[p_queue]::text[] || p_channels || p_kinds)::text[]);
  if num_nulls(p_group_id) = 1
    or v_count > 2
    or (coalesce(cardinality(p_on_failures), 0), coalesce(cardinality(p_kinds), 0),
        coalesce(cardinality(p_contents), 0), coalesce(cardinality(p_headers), 0), coalesce(cardinality(p_delays), 0),
        coalesce(cardinality(p_ats), 0), coalesce(cardinality(p_priorities), 0), coalesce(cardinality(p_keys), 0),
        coalesce(cardinality(p_max_attempts), 0))
       is distinct from (v_count, v_count, v_count, v_count, v_count, v_count, v_count, v_count, v_count)
    or exists (
      select
      from unnest(
        p_on_failures, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts
      ) u(on_failure, content, headers, delay, at, priority, key, max_attempts)
      where u.on_failure is null
        or u.content is null
        or octet_length(u.content) > 268435456
        or octet_length(u.key) not between 1 and 512
        or num_nonnulls(u.delay, u.at) > 1
        or u.delay not between 0 and 3153600000000000
        or u.at > 253402300799999999
        or u.priority < 1
        or (u.max_attempts >= 1) is not true
        or not fairqueue.fq_headers_fit(
          fairqueue.fq_group_headers(u.headers::jsonb, p_group_id, 0::bigint, 0::bigint, 0::bigint, 0::bigint)
        )
    )
    or p_on_failures[1] = p_on_failures[2]
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
    group_id, on_failure, channel, kind, content, headers, delay, at, priority, dedupe_key, max_attempts, policy
  )
  select p_group_id, u.on_failure, u.channel, u.kind, u.content, u.headers, u.delay, u.at, u.priority, u.key,
    u.max_attempts, p_policy
  from unnest(
    p_on_failures, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts
  ) u(on_failure, channel, kind, content, headers, delay, at, priority, key, max_attempts);
end
$$;
