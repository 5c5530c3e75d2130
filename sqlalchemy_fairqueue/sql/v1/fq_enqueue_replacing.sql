-- fq_enqueue_replacing: fq_enqueue_in_order, for messages of which some may replace those that have their keys. p_hold:
-- messages that the transaction settles or cancels later.
-- Guarantees and results: as fq_enqueue; one signal a channel.
-- How: first all are added whose keys are free. Those that are put off replace messages that belong to others too:
-- these are locked afterwards, by fq_lock_holders. If one of them has ended by then, all is undone, and begun again
-- with its key free; the twentieth try goes on and may wait, as one message alone does, for it has locked nothing when
-- it waits.
-- Locks: as fq_enqueue. Index: as fq_enqueue_in_order and fq_lock_holders. Errors: as fq_enqueue_in_order.
create function fairqueue.fq_enqueue_replacing(
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
  v_tries integer := case when cardinality(p_channels) > 1 or p_hold is not null then 20 else 1 end;
  -- of each message, in the order (channel, key): which it is, what became of it, and what its signal will tell
  v_ordinals integer[];
  v_ids bigint[];
  v_outcomes text[];
  v_channel_ids bigint[];
  v_ats bigint[];
  v_bounded boolean[];
  v_later text[];
  -- of those that are put off
  v_later_channels bigint[];
  v_later_keys text[];
  i integer;
  v_channel text;
  v_channel_id bigint;
  v_max_backlog integer;
  v_drop boolean;
  v_room bigint;
  v_message_id bigint;
  v_lease_id bigint;
  r record;
begin
  for v_try in 1..v_tries loop
    begin
      select array_agg(a.ordinal), array_agg(a.message_id), array_agg(a.outcome), array_agg(a.channel_id),
        array_agg(a.dequeue_at), array_agg(a.is_bounded), array_agg(a.later_key),
        array_agg(a.channel_id) filter (where a.later_key is not null), array_remove(array_agg(a.later_key), null)
      into v_ordinals, v_ids, v_outcomes, v_channel_ids, v_ats, v_bounded, v_later, v_later_channels, v_later_keys
      from fairqueue.fq_enqueue_in_order(
        p_queue, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
        p_policy, p_on_duplicates, p_costs, p_groups, p_common_headers, p_common_group_id, p_now, p_notify
      ) a;
      exit when v_later_channels is null;
      perform fairqueue.fq_lock_holders(v_later_channels, v_later_keys, p_hold, (v_try = v_tries)::boolean);
      i := 0;
      v_channel := null;
      for r in
        select u.*, coalesce(u.headers, p_common_headers) as own_headers,
          coalesce(u.group_id, p_common_group_id) as own_group_id
        from unnest(
          p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
          p_on_duplicates, p_costs, p_groups
        )
          with ordinality u(
            channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, group_id, ord
          )
        order by u.channel collate "C", u.key collate "C" nulls first, u.ord
      loop
        i := i + 1;
        continue when v_later[i] is null;
        if v_channel is distinct from r.channel then
          v_channel := r.channel;
          select c.channel_id, c.max_backlog, c.drop_when_full, c.room
          into v_channel_id, v_max_backlog, v_drop, v_room
          from fairqueue.fq_channel_room(p_queue, v_channel, p_policy) c;
          if v_max_backlog is not null then
            v_room := v_room - (
              select count(*)
              from unnest(v_channel_ids, v_outcomes) u(channel_id, outcome)
              where u.channel_id = v_channel_id
                and u.outcome = 'created'
            );
          end if;
        end if;
        loop
          select m.id, m.lease_id into v_message_id, v_lease_id
          from fairqueue.fq_message m
          where m.channel_id = v_channel_id
            and m.dedupe_key = r.key
          for no key update;
          if found and r.on_duplicate is distinct from 'replace' then
            v_outcomes[i] := 'duplicate';
            exit;
          elsif found and v_lease_id is null
            and v_channel_ids[i + 1] = v_channel_id
            and v_later[i + 1] = r.key
            and v_outcomes[i + 1] = 'replaced'
          then
            -- The next one replaces it again: a version of the row for each of many would be one more for each to
            -- pass by.
            v_outcomes[i] := 'replaced';
            exit;
          elsif found and v_lease_id is null then
            update fairqueue.fq_message m
            set kind = r.kind,
              content = r.content,
              headers = r.own_headers,
              dequeue_at = v_ats[i],
              priority = r.priority,
              max_attempts = coalesce(r.max_attempts, 20),
              cost = r.cost,
              attempts = 0,
              returned_at = null,
              error = null
            where m.id = v_message_id;
            v_outcomes[i] := 'replaced';
            exit;
          elsif v_room <= 0 then
            v_message_id := null;
            v_outcomes[i] := case when v_drop then 'dropped' else 'full' end;
            exit;
          elsif found then
            update fairqueue.fq_message m
            set dedupe_key = null
            where m.id = v_message_id;
          end if;
          insert into fairqueue.fq_message (
            channel_id, kind, content, headers, dequeue_at, enqueued_at, dedupe_key, priority, max_attempts, cost,
            group_id
          )
          values (
            v_channel_id, r.kind, r.content, r.own_headers, v_ats[i], p_now, r.key, r.priority,
            coalesce(r.max_attempts, 20), r.cost, r.own_group_id
          )
          on conflict (channel_id, dedupe_key) where dedupe_key is not null do nothing
          returning id into v_message_id;
          if found then
            v_outcomes[i] := 'created';
            v_room := v_room - 1;
            exit;
          end if;
          -- The message that held the key has just been completed, or one was added: try again.
        end loop;
        v_channel_ids[i] := v_channel_id;
        v_ids[i] := v_message_id;
        if r.priority is not null and v_ats[i] > p_now and v_outcomes[i] in ('created', 'replaced') then
          insert into fairqueue.fq_promotion (queue, due_at, message_id)
          values (p_queue, v_ats[i], v_message_id);
        end if;
      end loop;
      exit;
    exception when sqlstate 'QF099' then
      null;
    end;
  end loop;
  if v_later_channels is not null then
    perform fairqueue.fq_tell_enqueued(p_queue, v_channel_ids, v_ats, v_ids, v_outcomes, v_bounded, p_notify);
  end if;
  return query
  select u.ordinal, u.id, u.outcome = 'created', u.outcome
  from unnest(v_ordinals, v_ids, v_outcomes) u(ordinal, id, outcome);
end
$$;
