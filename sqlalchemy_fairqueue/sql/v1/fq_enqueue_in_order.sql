-- fq_enqueue_in_order: add messages one by one, in the order (channel, key): those that have a key, and those of
-- channels that are new, have a bound or raise priorities with time. p_common_headers, p_common_group_id: for messages
-- without an element of their own.
-- Guarantees and results: as fq_enqueue; one signal a channel.
-- Locks: as fq_enqueue. Index: fq_channel_queue_name_key, fq_message_dedupe_key, fq_channel_state_newest_ix.
-- Errors: 40001 as fq_make_channels, and for a key whose holder changed since the snapshot.
create function fairqueue.fq_enqueue_in_order(
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
  p_hold bigint[],
  p_costs integer[],
  p_groups uuid[],
  p_common_headers jsonb,
  p_common_group_id uuid,
  p_now bigint,
  p_notify boolean
)
returns table (ordinal integer, message_id bigint, created boolean, outcome text)
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
  v_count integer := coalesce(cardinality(p_channels), 0);
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
  v_later_replaces boolean[];
  v_index integer := 0;
  v_tries integer := case when v_count > 1 or p_hold is not null then 20 else 1 end;
  v_holders bigint[];
  v_held bigint[];
  -- what became of each
  v_ordinals integer[];
  v_ids bigint[];
  v_created boolean[];
  v_outcomes text[];
  r record;
begin
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
      v_later_replaces := '{}';
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
          select u.*, coalesce(u.headers, p_common_headers) as own_headers,
            coalesce(u.group_id, p_common_group_id) as own_group_id
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
            select r.max_backlog, r.drop_when_full, r.priority_aging, r.room
            into v_max_backlog, v_drop, v_aging, v_room
            from fairqueue.fq_channel_room(v_channel_id) r;
            if v_max_backlog is not null then
              v_bounded_channels := v_bounded_channels || v_channel_id;
              if v_pass = 2 then
                v_room := v_room - cardinality(array_positions(v_note_channels, v_channel_id));
              end if;
            end if;
          end if;
          v_policy := coalesce(r.on_duplicate, 'skip');
          v_at := case
            when r.at > p_now then r.at
            when r.delay > 0 then p_now + r.delay
            else fairqueue.fq_position((p_now - v_count + r.ord)::bigint, r.priority::integer, v_aging)
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
                and v_later_replaces[v_index + 1]
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
                v_channel_id, r.kind, r.content, r.own_headers, v_at, p_now, r.key, r.priority,
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
                  v_later_replaces := v_later_replaces || (v_policy = 'replace');
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
            if r.priority is not null and v_at > p_now and v_message_id is not null then
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
