-- fq_enqueue_in_order: add messages one by one, in the order (channel, key), for fq_enqueue_many. p_common_headers,
-- p_common_group_id: for messages without an element of their own. Returns arrays in that order: ordinals: the place of
-- each in the call; ats: its position; bounded_ids: channels with a bound. The caller leaves the signals.
-- Guarantees and outcomes: as fq_enqueue. First all messages are added whose keys are free. Those that are to replace
-- others are put off, and so are later ones of the same key. Then all that are to be replaced are locked, and p_hold
-- with them, all at once by id, so that transactions that settle, cancel or replace messages never wait for each other.
-- If one of them ended before, its key must not be waited for while the others are locked: QF099, or with p_is_last it
-- is passed over. Messages that coalesce come last: nothing is waited for after they lock.
-- Locks: as fq_enqueue and fq_lock_messages. Index: as fq_channel_room, fq_add_message and fq_find_waiting. Errors: as
-- these; QF099.
create function fairqueue.fq_enqueue_in_order(
  p_queue text, p_channels text[], p_kinds text[], p_contents bytea[], p_headers jsonb[], p_delays bigint[],
  p_ats bigint[], p_priorities integer[], p_keys text[], p_max_attempts integer[], p_policy jsonb,
  p_on_duplicates text[], p_hold bigint[], p_costs integer[], p_groups uuid[], p_unique_fors bigint[],
  p_from_ends boolean[], p_ordering_keys text[], p_common_headers jsonb,
  p_common_group_id uuid, p_now bigint, p_is_last boolean,
  out ordinals integer[], out ids bigint[], out created boolean[], out outcomes text[], out channel_ids bigint[],
  out ats bigint[], out group_ids uuid[], out bounded_ids bigint[]
)
language plpgsql
as $$
declare
  v_channel text;
  v_state fairqueue.fq_channel_state;
  -- the state of v_channel, and the room that it has left
  v_room record;
  v_added record;
  v_is_late boolean;
  v_waiting bigint;
  -- ids in the order of the call, as ordering keys promise
  v_ids bigint[] := fairqueue.fq_next_ids(cardinality(p_channels)::integer);
  i integer;
  -- by message, in the order (channel, key): its key, if it is put off; empty: it is to coalesce
  v_later text[];
  -- the messages that have these keys, before and after they are locked
  v_holders bigint[];
  v_held bigint[];
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
        p_on_duplicates, p_costs, p_groups, p_unique_fors, p_from_ends, p_ordering_keys
      )
        with ordinality u(
          channel, kind, content, headers, delay, at, priority, key, max_attempts, on_duplicate, cost, group_id,
          unique_for, from_end, ordering_key, ord
        )
      order by u.channel collate "C", u.key collate "C" nulls first, u.ord
    loop
      i := i + 1;
      continue when v_is_late and v_later[i] is null;
      if v_channel is distinct from r.channel then
        v_channel := r.channel;
        v_room := fairqueue.fq_channel_room(p_queue, v_channel, p_policy);
        v_state := v_room.state;
        if not v_is_late and v_state.max_backlog is not null then
          bounded_ids := bounded_ids || v_state.channel_id;
        elsif v_state.max_backlog is not null then
          v_room.room := v_room.room - (
            select count(*)
            from unnest(channel_ids, created) u(channel_id, created)
            where u.channel_id = v_state.channel_id
              and u.created
          );
        end if;
      end if;
      if not v_is_late then
        ordinals[i] := r.ord;
        channel_ids[i] := v_state.channel_id;
        group_ids[i] := r.own_group_id;
        ats[i] := case
          when r.at > p_now then r.at
          when r.delay > 0 then p_now + r.delay
          else fairqueue.fq_position(
            (p_now - cardinality(p_channels) + r.ord)::bigint, r.priority::integer, v_state.priority_aging
          )
        end;
      end if;
      v_waiting := case
        when v_later[i] = '' then
          fairqueue.fq_find_waiting(v_state.channel_id, r.kind::text, r.ordering_key::text, p_hold)
      end;
      if v_waiting is not null then
        v_later[i] := null;
        select v_waiting as message_id, 'coalesced' as outcome into v_added;
      elsif not v_is_late and r.on_duplicate = 'coalesce' then
        v_later[i] := '';
      elsif not v_is_late and channel_ids[i - 1] = channel_ids[i] and v_later[i - 1] = r.key then
        v_later[i] := r.key;
      else
        v_added := fairqueue.fq_add_message(
          p_queue, v_channel, v_state, v_room.room::bigint, r.kind::text, r.content::bytea,
          r.own_headers::jsonb, ats[i]::bigint, r.priority::integer, r.key::text, r.max_attempts::integer,
          r.on_duplicate::text, r.cost::integer, r.own_group_id::uuid, r.unique_for::bigint, r.from_end::boolean,
          r.ordering_key::text, v_ids[r.ord]::bigint, p_now, v_is_late,
          coalesce(
            v_is_late and channel_ids[i + 1] = channel_ids[i] and v_later[i + 1] = r.key and outcomes[i + 1] = 'replaced',
            false
          )::boolean
        );
        v_later[i] := case when v_added.outcome = 'later' then r.key end;
      end if;
      if v_later[i] is not null then
        -- Set, if only to null, so that all arrays begin at 1.
        ids[i] := null;
        created[i] := false;
        -- what is sure before its second round: with a period it may be a duplicate
        outcomes[i] := case when r.on_duplicate = 'replace' and r.unique_for is null then 'replaced' end;
      else
        ids[i] := v_added.message_id;
        outcomes[i] := v_added.outcome;
        created[i] := v_added.outcome = 'created';
        v_room.room := v_room.room - created[i]::integer;
      end if;
    end loop;
    exit when v_is_late or num_nonnulls(variadic v_later) = 0;
    for v_round in 1..2 loop
      v_holders := array(
        select h.id
        from unnest(channel_ids, v_later) with ordinality u(channel_id, key, ord)
        left join lateral (
          select m.id
          from fairqueue.fq_message m
          where m.channel_id = u.channel_id
            and m.key = u.key
          limit 1
        ) h on true
        where u.key <> ''
        order by u.ord
      );
      if not p_is_last and (array_position(v_holders, null) > 0 or v_holders <> v_held) then
        raise exception using errcode = 'QF099', message = 'a message to replace has ended';
      end if;
      exit when v_round = 2;
      v_held := v_holders;
      perform fairqueue.fq_lock_messages(p_queue, (p_hold || v_held)::bigint[]);
      exit when p_is_last;
    end loop;
  end loop;
end
$$;
