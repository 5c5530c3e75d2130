-- fq_enqueue: add messages to channels of a queue, in the caller's transaction. Arrays of one length in, one row a message out.
-- Guarantees: all or nothing with the caller's transaction; one signal a channel; a message whose key stands already in its channel
-- is not added, and the row names the message that holds the key (created = false).
-- p_delays are microseconds from now, p_ats microseconds since the epoch (the past means now), p_priorities >= 1; at most one of the three a message.
-- Locks: in the order (channel, key), COLLATE "C": first use of a channel waits for a transaction that is making the same one,
-- a key for one that is adding, ending or withdrawing the message that holds it.
-- Nothing else waits, and no row is touched that another transaction updates.
-- Index: fq_channel_queue_name_key, fq_message_dedupe_key. Errors: QF001 bad argument; 40001 as fq_make_channels.
create function fairqueue.fq_enqueue(
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
  p_max_concurrency integer default null,
  p_release_interval bigint default null,
  p_release_burst integer default null,
  p_weight integer default null
)
returns table (ordinal integer, message_id bigint, created boolean)
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
  v_now bigint := fairqueue.fq_now();
  v_count integer := coalesce(cardinality(p_channels), 0);
  v_bad integer;
  v_new text[];
  v_known integer;
  v_channel text;
  v_channel_id bigint;
  v_at bigint;
  v_made_channels bigint[];
  v_made_ats bigint[];
  v_made_ids bigint[];
  r record;
begin
  -- One good message for a channel that is there, as most transactions send: one statement, for the start of those below would cost more
  -- than their run. When it adds nothing (a new channel, a key that stands, a bad value), the general way does, or says why not.
  -- Bounds are checked, so that an element that another subscript hides is never passed over.
  if (array_dims(p_channels), array_dims(p_kinds), array_dims(p_contents), array_dims(p_headers), array_dims(p_delays), array_dims(p_ats),
      array_dims(p_priorities), array_dims(p_keys), array_dims(p_max_attempts))
     = ('[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]')
    and p_contents[1] is not null
    and octet_length(p_kinds[1]) between 1 and 512
    and (octet_length(p_keys[1]) between 1 and 512) is not false
    and num_nonnulls(p_delays[1], p_ats[1], p_priorities[1]) <= 1
    and (p_delays[1] between 0 and 3153600000000000) is not false
    and (p_priorities[1] >= 1) is not false
    and (p_max_attempts[1] >= 1) is not false
  then
    return query
    with added as (
      insert into fairqueue.fq_message as m (channel_id, kind, content, headers, dequeue_at, enqueued_at, dedupe_key, max_attempts)
      select c.id, p_kinds[1], p_contents[1], p_headers[1],
        case
          when p_priorities[1] is not null then -p_priorities[1]::bigint
          else greatest(p_ats[1], v_now + coalesce(p_delays[1], 0))
        end,
        v_now, p_keys[1], coalesce(p_max_attempts[1], 20)
      from fairqueue.fq_channel c
      where c.queue = p_queue
        and c.name = p_channels[1]
      on conflict (channel_id, dedupe_key) where dedupe_key is not null do nothing
      returning m.id, m.channel_id, m.dequeue_at
    )
    insert into fairqueue.fq_signal as s (queue, channel_id, dequeue_at, message_id)
    select p_queue, a.channel_id, a.dequeue_at, a.id
    from added a
    returning 1, s.message_id, true;
    if found then
      return;
    end if;
  end if;

  if v_count = 0 then
    return;
  end if;
  if (cardinality(p_kinds), cardinality(p_contents), cardinality(p_headers), cardinality(p_delays), cardinality(p_ats),
      cardinality(p_priorities), cardinality(p_keys), cardinality(p_max_attempts))
     is distinct from (v_count, v_count, v_count, v_count, v_count, v_count, v_count, v_count) then
    raise exception 'the arrays of fq_enqueue differ in length'
      using errcode = 'QF001', hint = 'pass arrays of one length, with null where a message has no value';
  end if;

  select u.ord into v_bad
  from unnest(p_channels, p_kinds, p_contents, p_delays, p_ats, p_priorities, p_keys, p_max_attempts)
    with ordinality u(channel, kind, content, delay, at, priority, key, max_attempts, ord)
  where u.channel is null
    or u.content is null
    or u.kind is null
    or octet_length(u.kind) not between 1 and 512
    or octet_length(u.key) not between 1 and 512
    or num_nonnulls(u.delay, u.at, u.priority) > 1
    or u.delay not between 0 and 3153600000000000
    or u.priority < 1
    or u.max_attempts < 1
  order by u.ord
  limit 1;
  if found then
    raise exception 'message % of fq_enqueue has a bad value', v_bad
      using errcode = 'QF001',
        detail = format('channel %L kind %L delay %s at %s priority %s key %L max_attempts %s', left(p_channels[v_bad], 80), left(p_kinds[v_bad], 80),
          coalesce(p_delays[v_bad]::text, 'null'), coalesce(p_ats[v_bad]::text, 'null'), coalesce(p_priorities[v_bad]::text, 'null'),
          left(p_keys[v_bad], 80), coalesce(p_max_attempts[v_bad]::text, 'null')),
        hint = 'give a channel, a kind and a content; a kind and a key of 1 to 512 bytes; one of delay (0 to 100 years), at and priority >= 1; max_attempts >= 1';
  end if;

  -- One message goes the way of the keyed ones: the start of these statements would cost more than their run.
  if v_count > 1 and num_nonnulls(variadic p_keys) = 0 then
    select array_agg(w.name), count(*) into v_new, v_known
    from (
      select distinct n collate "C" as name
      from unnest(p_channels) n
    ) w
    left join lateral (
      select c.id
      from fairqueue.fq_channel c
      where c.queue = p_queue
        and c.name = w.name
      limit 1
    ) known on true
    where known.id is null;
    if v_known > 0 then
      perform fairqueue.fq_make_channels(p_queue, v_new, p_max_concurrency, p_release_interval, p_release_burst, p_weight);
    end if;

    return query
    with given as (
      select u.ord, c.id as channel_id, u.kind, u.content, u.headers,
        case
          when u.priority is not null then -u.priority::bigint
          else greatest(u.at, v_now + coalesce(u.delay, 0))
        end as dequeue_at,
        coalesce(u.max_attempts, 20) as max_attempts
      from unnest(p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_max_attempts)
        with ordinality u(channel, kind, content, headers, delay, at, priority, max_attempts, ord)
      -- lateral with a limit: one look-up a message, whatever a plan made on empty tables thinks of reading the whole queue
      cross join lateral (
        select k.id
        from fairqueue.fq_channel k
        where k.queue = p_queue
          and k.name = u.channel
        limit 1
      ) c
    ),
    added as (
      insert into fairqueue.fq_message (channel_id, kind, content, headers, dequeue_at, enqueued_at, max_attempts)
      select g.channel_id, g.kind, g.content, g.headers, g.dequeue_at, v_now, g.max_attempts
      from given g
      order by g.ord
      returning id, channel_id, dequeue_at
    ),
    signalled as (
      insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
      select p_queue, l.channel_id, l.dequeue_at, l.id
      from (
        select distinct on (a.channel_id) a.channel_id, a.dequeue_at, a.id
        from added a
        order by a.channel_id, a.dequeue_at, a.id
      ) l
    )
    -- identity values were drawn in the order of the arrays
    select (row_number() over (order by a.id))::integer, a.id, true
    from added a
    order by a.id;
    get diagnostics v_known = row_count;
    if v_known <> v_count then
      raise exception 'a channel of queue % vanished while % messages were added to it', p_queue, v_count
        using errcode = 'QF001', hint = 'do not delete channels that are in use; try the transaction again';
    end if;
    return;
  end if;

  -- Keys are unique across transactions, so adding one can wait: each channel is made and filled before the next, its keys in order.
  -- The order of the call is kept by dequeue_at, a microsecond a message up to now.
  for r in
    select u.*
    from unnest(p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts)
      with ordinality u(channel, kind, content, headers, delay, at, priority, key, max_attempts, ord)
    order by u.channel collate "C", u.key collate "C" nulls first, u.ord
  loop
    if v_channel is distinct from r.channel then
      v_channel := r.channel;
      select c.id into v_channel_id
      from fairqueue.fq_channel c
      where c.queue = p_queue
        and c.name = v_channel;
      if not found then
        perform fairqueue.fq_make_channels(p_queue, array[v_channel], p_max_concurrency, p_release_interval, p_release_burst, p_weight);
        select c.id into strict v_channel_id
        from fairqueue.fq_channel c
        where c.queue = p_queue
          and c.name = v_channel;
      end if;
    end if;
    v_at := case
      when r.priority is not null then -r.priority::bigint
      when r.at > v_now then r.at
      when r.delay > 0 then v_now + r.delay
      else v_now - v_count + r.ord
    end;
    loop
      insert into fairqueue.fq_message (channel_id, kind, content, headers, dequeue_at, enqueued_at, dedupe_key, max_attempts)
      values (v_channel_id, r.kind, r.content, r.headers, v_at, v_now, r.key, coalesce(r.max_attempts, 20))
      on conflict (channel_id, dedupe_key) where dedupe_key is not null do nothing
      returning id into message_id;
      created := found;
      if created then
        v_made_channels := v_made_channels || v_channel_id;
        v_made_ats := v_made_ats || v_at;
        v_made_ids := v_made_ids || message_id;
        exit;
      end if;
      select m.id into message_id
      from fairqueue.fq_message m
      where m.channel_id = v_channel_id
        and m.dedupe_key = r.key;
      -- not found: the message that held the key has just been completed, so the key is free now
      exit when found;
    end loop;
    ordinal := r.ord;
    return next;
  end loop;

  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
  select distinct on (u.channel_id) p_queue, u.channel_id, u.dequeue_at, u.id
  from unnest(v_made_channels, v_made_ats, v_made_ids) u(channel_id, dequeue_at, id)
  order by u.channel_id, u.dequeue_at, u.id;
end
$$;
