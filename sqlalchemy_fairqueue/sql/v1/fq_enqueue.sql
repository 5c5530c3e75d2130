-- fq_enqueue: add messages to channels of a queue, in the caller's transaction. Arrays of one length in, one row a
-- message out.
-- Guarantees: all or nothing with the caller's transaction; one signal a channel. outcome: 'created'; 'duplicate': its
-- key stands in the channel, message_id holds it (p_on_duplicates skip or raise, which the caller raises); 'replaced':
-- the undelivered message that held the key has this content, kind, headers and time now, its attempts anew
-- (p_on_duplicates replace; one that is leased gives its key up to the new message: 'created'); 'full', 'dropped': the
-- channel has max_backlog messages that wait, by its policy the caller raises, or it is counted and forgotten
-- (message_id null). The backlog is what is committed and what this transaction did, other open transactions are not
-- seen; the signals of a bounded channel that nobody has heard yet are read for it. p_on_duplicates null: skip.
-- p_policy: the policy of channels that are new, if the queue has no defaults. p_delays are microseconds from now,
-- p_ats microseconds since the epoch (the past means now); at most one of the two a message. p_priorities >= 1: the
-- position of a message from the time on when it is due, see fq_promote. p_costs: what each costs its channel when it
-- is delivered, 1 to 1,000,000,000; null: 1.
-- p_groups: the groups that created messages belong to (since version 2); a message that is replaced stays in its own.
-- p_headers, p_groups: an array of one element holds for all messages.
-- Locks: in the order (channel, key), COLLATE "C": first use of a channel waits for a transaction that is making the
-- same one, a key for one that is adding, taking, ending or withdrawing the message that holds it. Then messages to
-- replace, with p_hold (what the transaction settles or cancels later), in the order of their ids; if one of them has
-- ended by then, all is undone and begun again, for nobody waits for a key while it holds a message. Nothing else
-- waits, and no row is touched that another transaction updates. p_notify (false by default): wake waiting consumers
-- (never in a two-phase transaction).
-- Index: fq_channel_queue_name_key, fq_message_dedupe_key, fq_channel_state_newest_ix, fq_signal_bounded_ix.
-- Errors: QF001 bad argument; 40001 as fq_make_channels, for a key whose holder changed since the snapshot, and under
-- SERIALIZABLE for two at one bounded channel; QF007.
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
  p_policy jsonb default null,
  p_on_duplicates text[] default null,
  p_notify boolean default false,
  p_hold bigint[] default null,
  p_costs integer[] default null,
  p_groups uuid[] default null
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
  v_now bigint := fairqueue.fq_now();
  v_count integer := coalesce(cardinality(p_channels), 0);
  v_alone boolean;
  v_bad integer;
  v_new text[];
  v_known integer;
  -- whether the messages are added one by one, not by a bulk insert: for bounds, and for the aging of priorities
  v_one_by_one boolean;
  v_prioritised boolean := num_nonnulls(variadic p_priorities) > 0;
  v_channel text;
  v_channel_id bigint;
  v_at bigint;
  v_max_backlog integer;
  v_drop boolean;
  v_aging bigint;
  v_room bigint;
  v_policy text;
  v_message_id bigint;
  v_lease_id bigint;
  -- what the signals will tell: (channel, time, id, how many more), without an id: one was dropped
  v_note_channels bigint[];
  v_note_ats bigint[];
  v_note_ids bigint[];
  v_note_added integer[];
  v_bounded_channels bigint[];
  -- messages to replace: where in the arrays, and whose key
  v_later integer[];
  v_later_channels bigint[];
  v_later_keys text[];
  v_index integer := 0;
  v_tries integer := case when v_count > 1 or p_hold is not null then 20 else 1 end;
  v_holders bigint[];
  v_held bigint[];
  -- what became of each
  v_ordinals integer[];
  v_ids bigint[];
  v_created boolean[];
  v_outcomes text[];
  -- of calls that have one for all messages
  v_headers jsonb;
  v_group_id uuid;
  r record;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(
      array['producer', 'loader']::text[], p_queue, coalesce(p_channels, '{}'::text[])::text[]
    )
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  -- One good message for a channel that is there, as most transactions send: one statement, for the start of those
  -- below would cost more than their run. When it adds nothing (a channel that is new or has a bound, a key that
  -- stands, a bad value), the general way does, or says why not. Bounds are checked, so that an element that another
  -- subscript hides is never passed over.
  if (array_dims(p_channels), array_dims(p_kinds), array_dims(p_contents), array_dims(p_headers), array_dims(p_delays),
      array_dims(p_ats), array_dims(p_priorities), array_dims(p_keys), array_dims(p_max_attempts))
     = ('[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]', '[1:1]')
    and p_contents[1] is not null
    and octet_length(p_kinds[1]) between 1 and 512
    and octet_length(p_contents[1]) <= 268435456
    and (octet_length(p_keys[1]) between 1 and 512) is not false
    and num_nonnulls(p_delays[1], p_ats[1], p_priorities[1]) <= 1
    and (p_headers[1] is null or fairqueue.fq_headers_fit(p_headers[1]::jsonb))
    and (p_ats[1] <= 253402300799999999) is not false
    and (p_delays[1] between 0 and 3153600000000000) is not false
    and (p_priorities[1] >= 1) is not false
    and (p_max_attempts[1] >= 1) is not false
    and (p_costs is null or (array_dims(p_costs) = '[1:1]' and (p_costs[1] between 1 and 1000000000) is not false))
    and (
      p_on_duplicates is null
      or (
        array_dims(p_on_duplicates) = '[1:1]'
        and coalesce(p_on_duplicates[1], 'skip') in ('skip', 'raise', 'replace')
      )
    )
    and (p_groups is null or array_dims(p_groups) = '[1:1]')
  then
    return query
    with added as (
      insert into fairqueue.fq_message as m (
        channel_id, kind, content, headers, dequeue_at, enqueued_at, dedupe_key, priority, max_attempts,
        cost, group_id
      )
      select c.id, p_kinds[1], p_contents[1], p_headers[1],
        fairqueue.fq_dequeue_at(
          v_now, p_delays[1]::bigint, p_ats[1]::bigint, p_priorities[1]::integer, s.priority_aging
        ),
        v_now, p_keys[1], p_priorities[1], coalesce(p_max_attempts[1], 20), p_costs[1], p_groups[1]
      from fairqueue.fq_channel c
      cross join lateral (
        select n.max_backlog, n.priority_aging, n.forget_xid
        from fairqueue.fq_channel_state n
        where n.channel_id = c.id
        order by n.channel_id desc, n.row_version desc
        limit 1
      ) s
      where c.queue = p_queue
        and c.name = p_channels[1]
        and s.max_backlog is null
        and s.forget_xid is null
      on conflict (channel_id, dedupe_key) where dedupe_key is not null do nothing
      returning m.id, m.channel_id, m.dequeue_at
    )
    insert into fairqueue.fq_signal as s (queue, channel_id, dequeue_at, message_id, added)
    select p_queue, a.channel_id, a.dequeue_at, a.id, 1
    from added a
    returning 1, s.message_id, true, 'created';
    v_alone := found;
    -- An undelivered message is replaced as shortly.
    if not v_alone and p_on_duplicates[1] = 'replace' and p_hold is null then
      return query
      with replaced as (
        update fairqueue.fq_message m
        set kind = p_kinds[1],
          content = p_contents[1],
          headers = p_headers[1],
          dequeue_at = fairqueue.fq_dequeue_at(
            v_now, p_delays[1]::bigint, p_ats[1]::bigint, p_priorities[1]::integer,
            (
              select n.priority_aging
              from fairqueue.fq_channel_state n
              where n.channel_id = m.channel_id
              order by n.channel_id desc, n.row_version desc
              limit 1
            )::bigint
          ),
          priority = p_priorities[1],
          max_attempts = coalesce(p_max_attempts[1], 20),
          cost = p_costs[1],
          attempts = 0,
          returned_at = null,
          error = null
        where m.ctid = (
            select x.ctid
            from fairqueue.fq_channel c
            join fairqueue.fq_message x on x.channel_id = c.id and x.dedupe_key = p_keys[1]
            where c.queue = p_queue
              and c.name = p_channels[1]
            limit 1
            for no key update of x
          )
          and num_nulls(m.lease_id) = 1
        returning m.id, m.channel_id, m.dequeue_at
      )
      insert into fairqueue.fq_signal as s (queue, channel_id, dequeue_at, message_id, added)
      select p_queue, a.channel_id, a.dequeue_at, a.id, 0
      from replaced a
      returning 1, s.message_id, false, 'replaced';
      v_alone := found;
    end if;
    if v_alone then
      if p_notify then
        perform fairqueue.fq_wake(p_queue);
      end if;
      return;
    end if;
  end if;

  if v_count = 0 then
    return;
  end if;
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

  -- One message goes the way of the keyed ones: the start of these statements would cost more than their run.
  if v_count > 1 and num_nonnulls(variadic p_keys) = 0 then
    for v_pass in 1..2 loop
      select array_agg(w.name) filter (where known.id is null), bool_or(known.one_by_one) into v_new, v_one_by_one
      from (
        select distinct n collate "C" as name
        from unnest(p_channels) n
      ) w
      left join lateral (
        select c.id,
          (
            select n.max_backlog is not null or n.forget_xid is not null
              or (n.priority_aging is not null and v_prioritised)
            from fairqueue.fq_channel_state n
            where n.channel_id = c.id
            order by n.channel_id desc, n.row_version desc
            limit 1
          ) as one_by_one
        from fairqueue.fq_channel c
        where c.queue = p_queue
          and c.name = w.name
        limit 1
      ) known on true;
      exit when v_new is null;
      perform fairqueue.fq_make_channels(p_queue, v_new, p_policy);
    end loop;
  end if;
  -- One element for all, as the members of a group send them, was read and checked once.
  if cardinality(p_headers) < v_count then
    v_headers := (select h from unnest(p_headers) h);
  end if;
  if cardinality(p_groups) < v_count then
    v_group_id := (select g from unnest(p_groups) g);
  end if;
  if v_one_by_one is false then
    return query
    with given as (
      select u.ord, c.id as channel_id, u.kind, u.content, coalesce(u.headers, v_headers) as headers, u.priority,
        fairqueue.fq_dequeue_at(
          v_now, u.delay::bigint, u.at::bigint, u.priority::integer, null::bigint
        ) as dequeue_at,
        coalesce(u.max_attempts, 20) as max_attempts, u.cost, coalesce(u.group_id, v_group_id) as group_id
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
      select g.channel_id, g.kind, g.content, g.headers, g.dequeue_at, v_now, g.priority, g.max_attempts, g.cost,
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
        and a.dequeue_at > v_now
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
    get diagnostics v_known = row_count;
    if v_known <> v_count then
      raise exception 'a channel of queue % vanished while % messages were added to it', p_queue, v_count
        using errcode = 'QF001', hint = 'do not delete channels that are in use; try the transaction again';
    end if;
    if p_notify then
      perform fairqueue.fq_wake(p_queue);
    end if;
    return;
  end if;

  -- Keys are unique across transactions, so adding one can wait: each channel is made and filled before the next, its
  -- keys in order. Messages that are to be replaced belong to others too: they are locked afterwards, all at once by
  -- id, so that transactions that settle or cancel messages and those that replace them never wait for each other. The
  -- order of the call is kept by dequeue_at, a microsecond a message up to now. One that has ended before it was locked
  -- leaves its key free, which must not be waited for while the others are held: all is undone, and begun again with
  -- that key free. (One alone has locked nothing when it waits.)
  for v_try in 1..v_tries loop
    begin
      v_ordinals := '{}';
      v_ids := '{}';
      v_created := '{}';
      v_outcomes := '{}';
      v_note_channels := '{}';
      v_note_ats := '{}';
      v_note_ids := '{}';
      v_note_added := '{}';
      v_bounded_channels := '{}';
      v_later := '{}';
      v_later_channels := '{}';
      v_later_keys := '{}';
      for v_pass in 1..2 loop
        if v_pass = 2 then
          exit when v_later = '{}';
          v_index := 0;
          v_channel := null;
          v_held := null;
          for v_round in 1..2 loop
            v_holders := array(
              select h.id
              from unnest(v_later_channels, v_later_keys) with ordinality u(channel_id, key, ord)
              left join lateral (
                select m.id
                from fairqueue.fq_message m
                where m.channel_id = u.channel_id
                  and m.dedupe_key = u.key
                limit 1
              ) h on true
              order by u.ord
            );
            if v_try < v_tries and (array_position(v_holders, null) > 0 or v_holders <> v_held) then
              raise exception using errcode = 'QF099', message = 'a message to replace has ended';
            end if;
            exit when v_round = 2;
            v_held := v_holders;
            perform fairqueue.fq_lock_messages((p_hold || v_held)::bigint[]);
            exit when v_try = v_tries;
          end loop;
        end if;
        for r in
          select u.*, coalesce(u.headers, v_headers) as own_headers, coalesce(u.group_id, v_group_id) as own_group_id
          from unnest(
            p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
            p_on_duplicates, p_costs, p_groups
          )
            with ordinality u(
              channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, group_id,
              ord
            )
          where v_pass = 1
            or u.ord = any (v_later)
          order by u.channel collate "C", u.key collate "C" nulls first, u.ord
        loop
          v_index := v_index + 1;
          if v_channel is distinct from r.channel then
            v_channel := r.channel;
            loop
              select c.id into v_channel_id
              from fairqueue.fq_channel c
              cross join lateral (
                select n.forget_xid
                from fairqueue.fq_channel_state n
                where n.channel_id = c.id
                order by n.channel_id desc, n.row_version desc
                limit 1
              ) n
              where c.queue = p_queue
                and c.name = v_channel
                and n.forget_xid is null;
              exit when found;
              perform fairqueue.fq_make_channels(p_queue, array[v_channel]::text[], p_policy);
            end loop;
            -- One snapshot for both: a signal that is heard meanwhile is counted once, in the one or in the other.
            -- Those below the last one heard, which a slow transaction left, count when they are heard: to read there
            -- would be to walk over all that an old snapshot keeps.
            select n.max_backlog, n.drop_when_full, n.priority_aging,
              case
                when n.max_backlog is not null then
                  n.max_backlog - n.backlog - (
                    select coalesce(sum(g.added), 0)
                    from fairqueue.fq_signal g
                    where g.channel_id = v_channel_id
                      and g.bounded
                      and g.id > n.heard_id
                  )
              end
            into v_max_backlog, v_drop, v_aging, v_room
            from fairqueue.fq_channel_state n
            where n.channel_id = v_channel_id
            order by n.channel_id desc, n.row_version desc
            limit 1;
            if v_max_backlog is not null then
              v_bounded_channels := v_bounded_channels || v_channel_id;
              if v_pass = 2 then
                v_room := v_room - cardinality(array_positions(v_note_channels, v_channel_id));
              end if;
            end if;
          end if;
          v_policy := coalesce(r.on_duplicate, 'skip');
          v_at := case
            when r.at > v_now then r.at
            when r.delay > 0 then v_now + r.delay
            else fairqueue.fq_position((v_now - v_count + r.ord)::bigint, r.priority::integer, v_aging)
          end;
          created := false;
          outcome := null;
          loop
            v_message_id := null;
            if r.key is not null and v_pass = 2 then
              select m.id, m.lease_id into v_message_id, v_lease_id
              from fairqueue.fq_message m
              where m.channel_id = v_channel_id
                and m.dedupe_key = r.key
              for no key update;
              if found and v_policy <> 'replace' then
                outcome := 'duplicate';
                exit;
              elsif found and v_lease_id is null
                and v_later_channels[v_index + 1] = v_channel_id
                and v_later_keys[v_index + 1] = r.key
                and p_on_duplicates[v_later[v_index + 1]] = 'replace'
              then
                -- The next one replaces it again: a version of the row for each of many would be one more for each to
                -- pass by.
                outcome := 'replaced';
                exit;
              elsif found and v_lease_id is null then
                update fairqueue.fq_message m
                set kind = r.kind,
                  content = r.content,
                  headers = r.own_headers,
                  dequeue_at = v_at,
                  priority = r.priority,
                  max_attempts = coalesce(r.max_attempts, 20),
                  cost = r.cost,
                  attempts = 0,
                  returned_at = null,
                  error = null
                where m.id = v_message_id;
                outcome := 'replaced';
                exit;
              elsif found and (v_room > 0) is not false then
                update fairqueue.fq_message m
                set dedupe_key = null
                where m.id = v_message_id;
              end if;
            end if;

            if (v_room > 0) is not false then
              insert into fairqueue.fq_message (
                channel_id, kind, content, headers, dequeue_at, enqueued_at, dedupe_key, priority, max_attempts,
                cost, group_id
              )
              values (
                v_channel_id, r.kind, r.content, r.own_headers, v_at, v_now, r.key, r.priority,
                coalesce(r.max_attempts, 20), r.cost, r.own_group_id
              )
              on conflict (channel_id, dedupe_key) where dedupe_key is not null do nothing
              returning id into v_message_id;
              if found then
                created := true;
                outcome := 'created';
                v_room := v_room - 1;
                exit;
              end if;
            end if;
            if r.key is not null and v_pass = 1 then
              select m.id into v_message_id
              from fairqueue.fq_message m
              where m.channel_id = v_channel_id
                and m.dedupe_key = r.key;
              if found then
                -- a message that comes after one to be replaced, with the same key, waits for its turn too
                if v_policy = 'replace'
                  or (
                    v_later_channels[cardinality(v_later)] = v_channel_id
                    and v_later_keys[cardinality(v_later)] = r.key
                  )
                then
                  v_later := v_later || r.ord::integer;
                  v_later_channels := v_later_channels || v_channel_id;
                  v_later_keys := v_later_keys || r.key;
                else
                  outcome := 'duplicate';
                end if;
                exit;
              end if;
            end if;
            if v_room <= 0 then
              v_message_id := null;
              outcome := case when v_drop then 'dropped' else 'full' end;
              exit;
            end if;
            -- The message that held the key has just been completed, or one was added: try again.
          end loop;

          if outcome in ('created', 'replaced', 'dropped') then
            v_note_channels := v_note_channels || v_channel_id;
            v_note_ats := v_note_ats || case when v_message_id is not null then v_at end;
            v_note_ids := v_note_ids || v_message_id;
            v_note_added := v_note_added || created::integer;
            if r.priority is not null and v_at > v_now and v_message_id is not null then
              insert into fairqueue.fq_promotion (queue, due_at, message_id)
              values (p_queue, v_at, v_message_id);
            end if;
          end if;
          if outcome is not null then
            v_ordinals := v_ordinals || r.ord::integer;
            v_ids := v_ids || v_message_id;
            v_created := v_created || created;
            v_outcomes := v_outcomes || outcome;
          end if;
        end loop;
      end loop;
      exit;
    exception when sqlstate 'QF099' then
      null;
    end;
  end loop;
  return query
  select u.*
  from unnest(v_ordinals, v_ids, v_created, v_outcomes) u;

  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, dropped, bounded)
  select p_queue, t.channel_id, t.least[1], t.least[2], t.added, t.dropped,
    t.added > 0 and t.channel_id = any (v_bounded_channels)
  from (
    select u.channel_id, sum(u.added) as added, count(*) filter (where u.id is null) as dropped,
      min(array[u.dequeue_at, u.id]) filter (where u.id is not null) as least
    from unnest(v_note_channels, v_note_ats, v_note_ids, v_note_added) u(channel_id, dequeue_at, id, added)
    group by u.channel_id
  ) t;
  if p_notify and num_nonnulls(variadic v_note_ids) > 0 then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
