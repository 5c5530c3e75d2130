-- fq_enqueue_in_order: add messages one by one, in the order (channel, key): those that have a key, and those of
-- channels that are new, have a bound or raise priorities with time. p_common_headers, p_common_group_id: for messages
-- without an element of their own.
-- Guarantees and results: as fq_enqueue, in that order; one signal a channel. Messages that replace those that have
-- their keys, and those of the same key that come after them, are put off: first all are added whose keys are free,
-- then all that are to be replaced are locked, and p_hold with them, by fq_lock_holders.
-- Locks: as fq_enqueue. Index: as fq_channel_room, fq_add_message and fq_lock_holders. Errors: as these; QF099 unless
-- p_is_last, see fq_lock_holders.
create function fairqueue.fq_enqueue_in_order(
  p_queue text, p_channels text[], p_kinds text[], p_contents bytea[], p_headers jsonb[], p_delays bigint[],
  p_ats bigint[], p_priorities integer[], p_keys text[], p_max_attempts integer[], p_policy jsonb,
  p_on_duplicates text[], p_notify boolean, p_hold bigint[], p_costs integer[], p_groups uuid[],
  p_unique_fors bigint[], p_from_ends boolean[], p_counts_members boolean, p_common_headers jsonb,
  p_common_group_id uuid, p_now bigint, p_is_last boolean
)
returns table (ordinal integer, message_id bigint, outcome text)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_channel text;
  -- its id, what its policy says of enqueues, and the room that it has left
  v_state record;
  v_added record;
  v_message_id bigint;
  v_outcome text;
  v_is_late boolean;
  -- of each message in that order
  i integer;
  v_ordinals integer[] := '{}';
  v_ids bigint[] := '{}';
  v_outcomes text[] := '{}';
  v_channel_ids bigint[] := '{}';
  v_ats bigint[] := '{}';
  v_bounded boolean[] := '{}';
  v_group_ids uuid[] := '{}';
  -- its key, if it is put off, and that of the message before
  v_later text[] := '{}';
  v_later_key text;
  r record;
begin
  -- Keys are unique across transactions, so adding one can wait: each channel is made and filled before the next, its
  -- keys in order. The order of the call is kept by dequeue_at, a microsecond a message up to now.
  foreach v_is_late in array array[false, true] loop
    i := 0;
    v_channel := null;
    for r in
      select u.*, coalesce(u.headers, p_common_headers) as own_headers,
        coalesce(u.group_id, p_common_group_id) as own_group_id
      from unnest(
        p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
        p_on_duplicates, p_costs, p_groups, p_unique_fors, p_from_ends
      )
        with ordinality u(
          channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, group_id,
          unique_for, from_end, ord
        )
      order by u.channel collate "C", u.key collate "C" nulls first, u.ord
    loop
      i := i + 1;
      continue when v_is_late and v_later[i] is null;
      if v_channel is distinct from r.channel then
        v_channel := r.channel;
        v_later_key := null;
        v_state := fairqueue.fq_channel_room(p_queue, v_channel, p_policy);
        if v_is_late and v_state.max_backlog is not null then
          v_state.room := v_state.room - (
            select count(*)
            from unnest(v_channel_ids, v_outcomes) u(channel_id, outcome)
            where u.channel_id = v_state.channel_id
              and u.outcome = 'created'
          );
        end if;
      end if;
      if not v_is_late then
        v_ordinals[i] := r.ord;
        v_channel_ids[i] := v_state.channel_id;
        v_bounded[i] := v_state.max_backlog is not null;
        v_group_ids[i] := r.own_group_id;
        v_ats[i] := case
          when r.at > p_now then r.at
          when r.delay > 0 then p_now + r.delay
          else fairqueue.fq_position(
            (p_now - cardinality(p_channels) + r.ord)::bigint, r.priority::integer, v_state.priority_aging
          )
        end;
      end if;
      if r.key = v_later_key and not v_is_late then
        v_outcome := 'later';
        v_message_id := null;
      else
        v_added := fairqueue.fq_add_message(
          p_queue, v_channel, v_state.channel_id::bigint, v_state.room::bigint, v_state.drop_when_full::boolean,
          r.kind::text, r.content::bytea, r.own_headers::jsonb, v_ats[i]::bigint, r.priority::integer, r.key::text,
          r.max_attempts::integer, r.on_duplicate::text, r.cost::integer, r.own_group_id::uuid, r.unique_for::bigint,
          r.from_end::boolean, p_now, v_is_late,
          coalesce(
            v_is_late and v_channel_ids[i + 1] = v_channel_ids[i] and v_later[i + 1] = r.key
              and v_outcomes[i + 1] = 'replaced',
            false
          )::boolean
        );
        v_outcome := v_added.outcome;
        v_message_id := v_added.message_id;
      end if;
      if not v_is_late then
        v_later_key := case when v_outcome = 'later' then r.key end;
        v_later[i] := v_later_key;
      end if;
      if v_outcome = 'later' then
        -- what is known of it: with a period it may be a duplicate
        v_outcome := case when r.on_duplicate = 'replace' and r.unique_for is null then 'replaced' end;
      elsif v_outcome = 'created' then
        v_state.room := v_state.room - 1;
      end if;
      v_ids[i] := v_message_id;
      v_outcomes[i] := v_outcome;
    end loop;
    exit when v_is_late or num_nonnulls(variadic v_later) = 0;
    perform fairqueue.fq_lock_holders(v_channel_ids, v_later, p_hold, p_is_last);
  end loop;

  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, dropped, bounded)
  select p_queue, t.channel_id, t.least[1], t.least[2], t.added, t.dropped, t.added > 0 and t.bounded
  from (
    select u.channel_id, count(*) filter (where u.outcome = 'created') as added,
      count(*) filter (where u.outcome = 'dropped') as dropped, bool_or(u.bounded) as bounded,
      min(array[u.dequeue_at, u.id]) filter (where u.outcome in ('created', 'replaced')) as least
    from unnest(v_channel_ids, v_ats, v_ids, v_outcomes, v_bounded) u(channel_id, dequeue_at, id, outcome, bounded)
    where u.outcome in ('created', 'replaced', 'dropped')
    group by u.channel_id
  ) t;
  insert into fairqueue.fq_group_note as n (id, group_id, added)
  select 0, u.group_id, count(*) filter (where u.outcome = 'created')
  from unnest(v_group_ids, v_outcomes) u(group_id, outcome)
  where u.group_id is not null
    and p_counts_members
  group by u.group_id
  on conflict on constraint fq_group_note_pkey do update
  set added = n.added + excluded.added;
  if p_notify and v_outcomes && array['created', 'replaced'] then
    perform fairqueue.fq_wake(p_queue);
  end if;
  return query
  select u.ordinal, u.id, u.outcome
  from unnest(v_ordinals, v_ids, v_outcomes) u(ordinal, id, outcome);
end
$$;
