-- fq_enqueue_unique: fq_enqueue, for messages of which some have keys that stay taken for a period, in the caller's
-- transaction. p_unique_fors: for how many microseconds, null: while the message lives, as ever; p_from_ends: counted
-- from the end of the message, else from this call. The rest is as for fq_enqueue, bad values too: they are refused
-- whether a key is taken or not.
-- Guarantees: of two messages of a channel that were added under one key with a period, the later one was added when
-- the period of the earlier one was over. Until then it is a 'duplicate' of that, ended or not; with p_on_duplicates
-- replace, a message that nobody holds is 'replaced', and the period begins anew. The period holds however the message
-- ends: completed, dead, cancelled or purged. Messages without a period meet living ones alone.
-- How: fq_enqueue comes first, so that of two transactions one waits for the other's message as ever. Who has added the
-- message has its key, and then writes the row of the period by fq_begin_periods; where that belongs to another
-- message, all is undone, the signal too, and begun again without the message.
-- Locks: as fq_enqueue, and then rows of fq_key_period that nobody else writes but housekeeping, which waits for none.
-- Index: as fq_enqueue, fq_key_period_pkey, fq_message_pkey.
-- Errors: as fq_enqueue; 40001 for a period that began after the snapshot.
create function fairqueue.fq_enqueue_unique(
  p_queue text,
  p_channels text[],
  p_kinds text[],
  p_contents bytea[],
  p_headers jsonb[],
  p_delays bigint[],
  p_ats bigint[],
  p_priorities integer[],
  p_keys text[],
  p_max_attempts integer[],
  p_policy jsonb,
  p_on_duplicates text[],
  p_notify boolean,
  p_hold bigint[],
  p_costs integer[],
  p_groups uuid[],
  p_unique_fors bigint[],
  p_from_ends boolean[]
)
returns table (ordinal integer, message_id bigint, created boolean, outcome text)
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
#variable_conflict use_column
declare
  c_tries constant integer := 20;
  v_count integer := coalesce(cardinality(p_channels), 0);
  -- of all messages: which message has the key for a period, null: none
  v_holders bigint[];
  -- of those that are passed on: which they are, and what they have
  v_passed integer[];
  v_channels text[];
  v_kinds text[];
  v_contents bytea[];
  v_headers jsonb[];
  v_delays bigint[];
  v_ats bigint[];
  v_priorities integer[];
  v_keys text[];
  v_max_attempts integer[];
  v_on_duplicates text[];
  v_costs integer[];
  v_groups uuid[];
  v_unique_fors bigint[];
  v_from_ends boolean[];
  -- what became of these
  v_ids bigint[];
  v_created boolean[];
  v_outcomes text[];
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(
      array['producer']::text[], p_queue, coalesce(p_channels, '{}'::text[])::text[]
    )
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  if v_count = 0 then
    return;
  end if;
  if (cardinality(p_kinds), cardinality(p_contents), cardinality(p_delays), cardinality(p_ats),
      cardinality(p_priorities), cardinality(p_keys), cardinality(p_max_attempts), cardinality(p_unique_fors),
      cardinality(p_from_ends))
     is distinct from (v_count, v_count, v_count, v_count, v_count, v_count, v_count, v_count, v_count)
    or (cardinality(p_headers) in (1, v_count)) is not true
    or cardinality(p_on_duplicates) <> v_count
    or cardinality(p_costs) <> v_count
    or cardinality(p_groups) not in (1, v_count)
  then
    raise exception 'the arrays of fq_enqueue_unique differ in length'
      using errcode = 'QF001', hint = 'pass arrays of one length, with null where a message has no value';
  end if;
  if v_count = 1
    and num_nulls(p_channels[1], p_keys[1], p_from_ends[1]) = 0
    and p_unique_fors[1] between 1 and 3153600000000000
    -- an element that another subscript hides is never passed over
    and (p_groups is null or (array_dims(p_groups) = '[1:1]' and num_nonnulls(p_groups[1]) = 0))
    and (
      p_on_duplicates is null
      or (array_dims(p_on_duplicates) = '[1:1]' and coalesce(p_on_duplicates[1], 'skip') <> 'replace')
    )
  then
    return query
    select 1, e.message_id, e.created, e.outcome
    from fairqueue.fq_enqueue_one_unique(
      p_queue::text, p_channels::text[], p_kinds::text[], p_contents::bytea[], p_headers::jsonb[],
      p_delays::bigint[], p_ats::bigint[], p_priorities::integer[], p_keys::text[],
      p_max_attempts::integer[], p_policy::jsonb, p_on_duplicates::text[], p_notify::boolean,
      p_hold::bigint[], p_costs::integer[], p_groups::uuid[], p_unique_fors::bigint[],
      p_from_ends::boolean[]
    ) e;
    return;
  end if;

  perform fairqueue.fq_check_periods(p_keys, p_unique_fors, p_from_ends);
  for v_try in 1..c_tries loop
    -- A message that waits can be replaced, unless it was taken each time that this was tried.
    v_holders := fairqueue.fq_period_holders(
      p_queue, p_channels, p_keys, p_unique_fors, p_on_duplicates, (v_try < c_tries)::boolean
    );
    -- fq_enqueue checks those that are passed on, and counts them.
    if num_nonnulls(variadic v_holders) > 0 then
      perform fairqueue.fq_check_messages(
        p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
        p_on_duplicates, p_costs, p_groups
      );
    end if;
    select array_agg(u.ord::integer order by u.ord), array_agg(u.channel order by u.ord),
      array_agg(u.kind order by u.ord),
      array_agg(u.content order by u.ord), array_agg(u.headers order by u.ord), array_agg(u.delay order by u.ord),
      array_agg(u.at order by u.ord), array_agg(u.priority order by u.ord), array_agg(u.key order by u.ord),
      array_agg(u.max_attempts order by u.ord), array_agg(u.on_duplicate order by u.ord),
      array_agg(u.cost order by u.ord), array_agg(u.group_id order by u.ord), array_agg(u.unique_for order by u.ord),
      array_agg(u.from_end order by u.ord)
    into v_passed, v_channels, v_kinds, v_contents, v_headers, v_delays, v_ats, v_priorities, v_keys, v_max_attempts,
      v_on_duplicates, v_costs, v_groups, v_unique_fors, v_from_ends
    from unnest(
      p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
      p_on_duplicates, p_costs, p_groups, p_unique_fors, p_from_ends, v_holders
    )
      with ordinality u(
        channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, group_id,
        unique_for, from_end, holder, ord
      )
    where u.holder is null;
    -- One element for all messages is one for those that are left.
    if cardinality(p_headers) < v_count then
      v_headers := p_headers;
    end if;
    if cardinality(p_groups) < v_count then
      v_groups := p_groups;
    end if;

    begin
      select array_agg(e.message_id order by e.ordinal), array_agg(e.created order by e.ordinal),
        array_agg(e.outcome order by e.ordinal)
      into v_ids, v_created, v_outcomes
      from fairqueue.fq_enqueue(
        p_queue::text, v_channels::text[], v_kinds::text[], v_contents::bytea[], v_headers::jsonb[],
        v_delays::bigint[], v_ats::bigint[], v_priorities::integer[], v_keys::text[], v_max_attempts::integer[],
        p_policy::jsonb, v_on_duplicates::text[], p_notify::boolean, p_hold::bigint[], v_costs::integer[],
        v_groups::uuid[]
      ) e;
      if not fairqueue.fq_begin_periods(
        p_queue::text, v_channels::text[], v_keys::text[], v_unique_fors::bigint[], v_from_ends::boolean[],
        v_ids::bigint[], v_outcomes::text[]
      )
      then
        raise exception using errcode = 'QF099', message = 'a key belongs to a period of another message';
      end if;
      return query
      select u.ord, u.id, u.created, u.outcome
      from unnest(v_passed, v_ids, v_created, v_outcomes) u(ord, id, created, outcome)
      union all
      select h.ord::integer, h.holder, false, 'duplicate'
      from unnest(v_holders) with ordinality h(holder, ord)
      where h.holder is not null;
      return;
    exception when sqlstate 'QF099' then
      null;
    end;
  end loop;
  raise exception 'a key of queue % was taken for another period at each of % tries', quote_literal(p_queue), c_tries
    using errcode = '40001', hint = 'try the transaction again';
end
$$;
