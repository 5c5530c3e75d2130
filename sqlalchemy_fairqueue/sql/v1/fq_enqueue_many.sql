-- fq_enqueue_many: what fq_enqueue does with several messages. Those without keys, for channels that are there and have
-- no bound, are added by one statement; others one by one, by fq_enqueue_in_order.
-- Guarantees and results: as fq_enqueue. Where a message that is to be replaced has ended, all is undone, and begun
-- again with its key free; the twentieth try goes on and may wait, as one message alone does, for it has locked nothing
-- when it waits.
-- Locks: as fq_enqueue. Index: fq_channel_queue_name_key, and as fq_enqueue_in_order. Errors: QF001 bad argument, or a
-- channel is gone; as fq_enqueue_in_order.
create function fairqueue.fq_enqueue_many(
  p_queue text, p_channels text[], p_kinds text[], p_contents bytea[], p_headers jsonb[], p_delays bigint[],
  p_ats bigint[], p_priorities integer[], p_keys text[], p_max_attempts integer[], p_policy jsonb,
  p_on_duplicates text[], p_notify boolean, p_hold bigint[], p_costs integer[], p_groups uuid[],
  p_unique_fors bigint[], p_from_ends boolean[], p_counts_members boolean, p_now bigint
)
returns table (ordinal integer, message_id bigint, created boolean, outcome text)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  c_tries constant integer := 20;
  v_count integer := cardinality(p_channels);
  -- whether some have keys, bounds or priorities that age
  v_one_by_one boolean := num_nonnulls(variadic p_keys) > 0;
  v_added integer;
  -- of calls that have one for all messages
  v_headers jsonb;
  v_group_id uuid;
begin
  perform fairqueue.fq_check_messages(
    p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
    p_on_duplicates, p_costs, p_groups, p_unique_fors, p_from_ends
  );
  if p_counts_members and exists (
    select
    from (select distinct g as group_id from unnest(p_groups) g where g is not null) u
    where not exists (
      select
      from fairqueue.fq_group k
      where k.group_id = u.group_id
        and k.queue = p_queue
        and k.created_xid = pg_current_xact_id()
    )
  ) then
    raise exception 'fq_enqueue adds to a group that its transaction has not made for queue %',
      quote_nullable(left(p_queue, 80))
      using errcode = 'QF001', hint = 'make it in this transaction by fq_make_group, or count members by fq_join_group';
  end if;
  -- One element for all, as the members of a group send them, was read and checked once.
  if cardinality(p_headers) < v_count then
    v_headers := (select h from unnest(p_headers) h);
  end if;
  if cardinality(p_groups) < v_count then
    v_group_id := (select g from unnest(p_groups) g);
  end if;

  if not v_one_by_one then
    v_one_by_one := fairqueue.fq_make_missing_channels(p_queue, p_channels, p_policy, p_priorities);
  end if;
  if v_one_by_one is not false then
    for v_try in 1..c_tries loop
      if ('replace' = any (p_on_duplicates)) is not true then
        return query
        select e.ordinal, e.message_id, e.outcome = 'created', e.outcome
        from fairqueue.fq_enqueue_in_order(
          p_queue, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
          p_policy, p_on_duplicates, p_notify, p_hold, p_costs, p_groups, p_unique_fors, p_from_ends,
          p_counts_members, v_headers, v_group_id, p_now, true::boolean
        ) e;
        return;
      end if;
      begin
        return query
        select e.ordinal, e.message_id, e.outcome = 'created', e.outcome
        from fairqueue.fq_enqueue_in_order(
          p_queue, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
          p_policy, p_on_duplicates, p_notify, p_hold, p_costs, p_groups, p_unique_fors, p_from_ends,
          p_counts_members, v_headers, v_group_id, p_now, (v_try = c_tries)::boolean
        ) e;
        return;
      exception when sqlstate 'QF099' then
        null;
      end;
    end loop;
  end if;

  return query
  with added as (
    insert into fairqueue.fq_message (
      channel_id, kind, content, headers, dequeue_at, enqueued_at, priority, max_attempts, cost, group_id
    )
    select c.id, u.kind, u.content, coalesce(u.headers, v_headers),
      fairqueue.fq_dequeue_at(p_now, u.delay::bigint, u.at::bigint, u.priority::integer, null::bigint), p_now,
      u.priority, coalesce(u.max_attempts, 20), u.cost, coalesce(u.group_id, v_group_id)
    from unnest(
      p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_max_attempts, p_costs, p_groups
    )
      with ordinality u(channel, kind, content, headers, delay, at, priority, max_attempts, cost, group_id, ord)
    -- lateral with a limit: one index probe a message, also in a plan that was made on empty tables and would read
    -- the whole queue
    cross join lateral (
      select k.id
      from fairqueue.fq_channel k
      where k.queue = p_queue
        and k.name = u.channel
      limit 1
    ) c
    order by u.ord
    returning id, channel_id, dequeue_at, priority, group_id
  ),
  promotions as (
    insert into fairqueue.fq_promotion (queue, due_at, message_id)
    select p_queue, a.dequeue_at, a.id
    from added a
    where a.priority is not null
      and a.dequeue_at > p_now
  ),
  noted as (
    insert into fairqueue.fq_group_note as n (id, group_id, added)
    select 0, a.group_id, count(*)
    from added a
    where p_counts_members
      and a.group_id is not null
    group by a.group_id
    on conflict on constraint fq_group_note_pkey do update
    set added = n.added + excluded.added
  ),
  signalled as (
    insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added)
    select p_queue, l.channel_id, l.least[1], l.least[2], l.messages
    from (
      select a.channel_id, min(array[a.dequeue_at, a.id]) as least, count(*) as messages
      from added a
      group by a.channel_id
    ) l
  )
  -- identity values were drawn in the order of the arrays
  select (row_number() over (order by a.id))::integer, a.id, true, 'created'
  from added a
  order by a.id;
  get diagnostics v_added = row_count;
  if v_added <> v_count then
    raise exception 'a channel of queue % vanished while % messages were added to it', p_queue, v_count
      using errcode = 'QF001', hint = 'do not delete channels that are in use; try the transaction again';
  end if;
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
