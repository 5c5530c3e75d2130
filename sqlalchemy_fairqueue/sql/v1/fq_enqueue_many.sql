-- fq_enqueue_many: add the messages that fq_enqueue cannot add as one. Channels that are missing are made. If no
-- message has a key or coalesces, and each channel takes any (fq_takes_any), one statement adds them, else
-- fq_enqueue_in_order.
-- Guarantees and results: as fq_enqueue. If a message to replace has ended, all is undone and begun again with its key
-- free. The twentieth try may wait, as one message alone does, since it has locked nothing when it waits.
-- Locks: as fq_enqueue. Index: fq_channel_queue_name_key, and as fq_enqueue_in_order. Errors: QF001 bad argument, or a
-- channel is gone; as fq_enqueue_in_order.
create function fairqueue.fq_enqueue_many(
  p_queue text, p_channels text[], p_kinds text[], p_contents bytea[], p_headers jsonb[], p_delays bigint[],
  p_ats bigint[], p_priorities integer[], p_keys text[], p_max_attempts integer[], p_policy jsonb,
  p_on_duplicates text[], p_notify boolean, p_hold bigint[], p_costs integer[], p_groups uuid[],
  p_unique_fors bigint[], p_from_ends boolean[], p_counts_members boolean, p_ordering_keys text[], p_now bigint
)
returns table (ordinal integer, message_id bigint, created boolean, outcome text)
language plpgsql
as $$
declare
  c_tries constant integer := 20;
  v_count integer := cardinality(p_channels);
  -- some have keys or coalesce, or fq_make_missing_channels says so
  v_one_by_one boolean := num_nonnulls(variadic p_keys) > 0
    or ('coalesce' = any (p_on_duplicates)) is true;
  -- of a call that has one element for all messages: it is read and checked once
  v_headers jsonb := case when cardinality(p_headers) = 1 then (select h from unnest(p_headers) h) end;
  v_group_id uuid := case when cardinality(p_groups) = 1 then (select g from unnest(p_groups) g) end;
  -- as fq_enqueue_in_order returns them
  v_added record;
begin
  perform fairqueue.fq_check_messages(
    p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
    p_on_duplicates, p_costs, p_groups, p_unique_fors, p_from_ends, p_ordering_keys
  );
  if p_counts_members and exists (
    select
    from (select distinct g from unnest(p_groups) g where g is not null) u
    left join fairqueue.fq_group k
      on k.group_id = u.g and k.queue = p_queue and k.created_xid = pg_current_xact_id()
    where num_nulls(k.group_id) = 1
  ) then
    raise exception 'fq_enqueue adds to a group that its transaction has not made for queue %',
      quote_nullable(left(p_queue, 80))
      using errcode = 'QF001', hint = 'make it in this transaction by fq_make_group, or count members by fq_join_group';
  end if;
  if not v_one_by_one then
    v_one_by_one := fairqueue.fq_make_missing_channels(p_queue, p_channels, p_policy, p_priorities);
  end if;
  if v_one_by_one is not false then
    for v_try in 1..c_tries loop
      if ('replace' = any (p_on_duplicates)) is not true then
        v_added := fairqueue.fq_enqueue_in_order(
          p_queue, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
          p_policy, p_on_duplicates, p_hold, p_costs, p_groups, p_unique_fors, p_from_ends, p_ordering_keys,
          v_headers, v_group_id, p_now, true::boolean
        );
        exit;
      end if;
      begin
        v_added := fairqueue.fq_enqueue_in_order(
          p_queue, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
          p_policy, p_on_duplicates, p_hold, p_costs, p_groups, p_unique_fors, p_from_ends, p_ordering_keys,
          v_headers, v_group_id, p_now, (v_try = c_tries)::boolean
        );
        exit;
      exception when sqlstate 'QF099' then
        null;
      end;
    end loop;
  else
    with added as (
      insert into fairqueue.fq_message (
        channel_id, kind, content, headers, dequeue_at, enqueued_at, priority, max_attempts, cost, group_id,
        ordering_key
      )
      select c.id, u.kind, u.content, coalesce(u.headers, v_headers),
        fairqueue.fq_dequeue_at(p_now, u.delay::bigint, u.at::bigint, u.priority::integer, null::bigint), p_now,
        u.priority, coalesce(u.max_attempts, 20), u.cost, coalesce(u.group_id, v_group_id), u.ordering_key
      from unnest(
        p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_max_attempts, p_costs, p_groups,
        p_ordering_keys
      )
        with ordinality u(channel, kind, content, headers, delay, at, priority, max_attempts, cost, group_id,
          ordering_key, ord)
      cross join lateral fairqueue.fq_find_channel(p_queue, u.channel::text) c
      order by u.ord
      returning id, channel_id, dequeue_at, group_id
    )
    -- in the order of the arrays, in which they were added
    select array_agg(a.id) as ids, array_agg(a.channel_id) as channel_ids, array_agg(a.dequeue_at) as ats,
      array_agg(a.group_id) filter (where p_counts_members) as group_ids, null::integer[] as ordinals,
      array_fill('created'::text, array[v_count]) as outcomes, array_fill(true, array[v_count]) as created,
      null::bigint[] as bounded_ids
    into v_added
    from added a;
    if cardinality(v_added.ids) is distinct from v_count then
      raise exception 'a channel of queue % vanished while % messages were added to it', p_queue, v_count
        using errcode = 'QF001', hint = 'do not delete channels that are in use; try the transaction again';
    end if;
    if num_nonnulls(variadic p_priorities) > 0 then
      insert into fairqueue.fq_promotion (queue, due_at, message_id)
      select p_queue, u.dequeue_at, u.id
      from unnest(p_priorities, v_added.ats, v_added.ids) u(priority, dequeue_at, id)
      where u.priority is not null
        and u.dequeue_at > p_now;
    end if;
  end if;

  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, dropped, bounded)
  select p_queue, t.channel_id, t.least[1], t.least[2], t.added, t.dropped,
    (t.added > 0 and t.channel_id = any (v_added.bounded_ids)) is true
  from (
    select u.channel_id, count(*) filter (where u.created) as added,
      count(*) filter (where not u.created and u.outcome = 'dropped') as dropped,
      min(array[u.dequeue_at, u.id]) filter (where u.created or u.outcome = 'replaced') as least
    from (
      select unnest(v_added.channel_ids) as channel_id, unnest(v_added.ats) as dequeue_at, unnest(v_added.ids) as id,
        unnest(v_added.created) as created, unnest(v_added.outcomes) as outcome
    ) u
    where u.created or u.outcome in ('replaced', 'dropped')
    group by u.channel_id
  ) t;
  if p_counts_members then
    insert into fairqueue.fq_group_note as n (id, group_id, added)
    select 0, u.group_id, count(*) filter (where u.created)
    from unnest(v_added.group_ids, v_added.created) u(group_id, created)
    where u.group_id is not null
    group by u.group_id
    on conflict on constraint fq_group_note_pkey do update
    set added = n.added + excluded.added;
  end if;
  if p_notify and v_added.outcomes && array['created', 'replaced'] then
    perform fairqueue.fq_wake(p_queue);
  end if;
  return query
  select coalesce(u.ordinal, u.place), u.id, u.created, u.outcome
  from (
    select unnest(v_added.ordinals) as ordinal, generate_subscripts(v_added.ids, 1) as place, unnest(v_added.ids) as id,
      unnest(v_added.created) as created, unnest(v_added.outcomes) as outcome
  ) u;
end
$$;
