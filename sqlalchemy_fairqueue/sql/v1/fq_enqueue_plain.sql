-- fq_enqueue_plain: add messages without keys to channels that are there and have no bound, all by one statement.
-- Returns the place of each in the arrays, and its id.
-- p_common_headers, p_common_group_id: for messages without an element of their own.
-- Guarantees: ids in the order of the arrays; one signal a channel.
-- Locks: none that another transaction could wait for. Index: fq_channel_queue_name_key. Errors: QF001 a channel is
-- gone.
create function fairqueue.fq_enqueue_plain(
  p_queue text,
  p_channels text[],
  p_kinds text[],
  p_contents bytea[],
  p_headers jsonb[],
  p_delays bigint[],
  p_ats bigint[],
  p_priorities integer[],
  p_max_attempts integer[],
  p_costs integer[],
  p_groups uuid[],
  p_common_headers jsonb,
  p_common_group_id uuid,
  p_now bigint
)
returns table (ordinal integer, message_id bigint)
language plpgsql
volatile
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
  v_added integer;
begin
  return query
  with given as (
    select u.ord, c.id as channel_id, u.kind, u.content, coalesce(u.headers, p_common_headers) as headers, u.priority,
      fairqueue.fq_dequeue_at(
        p_now, u.delay::bigint, u.at::bigint, u.priority::integer, null::bigint
      ) as dequeue_at,
      coalesce(u.max_attempts, 20) as max_attempts, u.cost, coalesce(u.group_id, p_common_group_id) as group_id
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
  ),
  added as (
    insert into fairqueue.fq_message (
      channel_id, kind, content, headers, dequeue_at, enqueued_at, priority, max_attempts, cost, group_id
    )
    select g.channel_id, g.kind, g.content, g.headers, g.dequeue_at, p_now, g.priority, g.max_attempts, g.cost,
      g.group_id
    from given g
    order by g.ord
    returning id, channel_id, dequeue_at, priority
  ),
  promotions as (
    insert into fairqueue.fq_promotion (queue, due_at, message_id)
    select p_queue, a.dequeue_at, a.id
    from added a
    where a.priority is not null
      and a.dequeue_at > p_now
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
  select (row_number() over (order by a.id))::integer, a.id
  from added a
  order by a.id;
  get diagnostics v_added = row_count;
  if v_added <> cardinality(p_channels) then
    raise exception 'a channel of queue % vanished while % messages were added to it', p_queue, cardinality(p_channels)
      using errcode = 'QF001', hint = 'do not delete channels that are in use; try the transaction again';
  end if;
end
$$;
