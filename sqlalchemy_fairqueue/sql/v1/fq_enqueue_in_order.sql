-- fq_enqueue_in_order: add messages one by one, in the order (channel, key): those that have a key, and those of
-- channels that are new, have a bound or raise priorities with time. p_common_headers, p_common_group_id: for messages
-- without an element of their own.
-- Guarantees and results: as fq_enqueue, in that order; one signal a channel. A message whose key stands, and that is
-- to replace the one that has it or comes after one that is to, is put off: it has a later_key, and the outcome that it
-- will have unless the other message ends. If any is, no signal is left and nobody is woken: both are up to
-- fq_enqueue_replacing, for which the rows have the channel and the time, and whether the channel is bounded.
-- Locks: as fq_enqueue, but for messages to replace. Index: fq_message_dedupe_key, and as fq_channel_room.
-- Errors: 40001 as fq_make_channels, and for a key whose holder changed since the snapshot.
-- Its callers set how its statements are planned: to set it again would take longer than the call.
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
  p_costs integer[],
  p_groups uuid[],
  p_common_headers jsonb,
  p_common_group_id uuid,
  p_now bigint,
  p_notify boolean
)
returns table (
  ordinal integer,
  message_id bigint,
  created boolean,
  outcome text,
  channel_id bigint,
  dequeue_at bigint,
  is_bounded boolean,
  later_key text
)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_count integer := cardinality(p_channels);
  v_channel text;
  v_channel_id bigint;
  v_max_backlog integer;
  v_drop boolean;
  v_aging bigint;
  v_room bigint;
  v_at bigint;
  v_message_id bigint;
  -- whether one was put off, and the last that was
  v_later boolean := false;
  v_later_channel text;
  v_later_key text;
  -- what the signals will tell
  v_channel_ids bigint[] := '{}';
  v_ats bigint[] := '{}';
  v_ids bigint[] := '{}';
  v_outcomes text[] := '{}';
  v_bounded boolean[] := '{}';
  r record;
begin
  -- Keys are unique across transactions, so adding one can wait: each channel is made and filled before the next, its
  -- keys in order. The order of the call is kept by dequeue_at, a microsecond a message up to now.
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
    if v_channel is distinct from r.channel then
      v_channel := r.channel;
      select c.channel_id, c.max_backlog, c.drop_when_full, c.priority_aging, c.room
      into v_channel_id, v_max_backlog, v_drop, v_aging, v_room
      from fairqueue.fq_channel_room(p_queue, v_channel, p_policy) c;
    end if;
    v_at := case
      when r.at > p_now then r.at
      when r.delay > 0 then p_now + r.delay
      else fairqueue.fq_position((p_now - v_count + r.ord)::bigint, r.priority::integer, v_aging)
    end;
    created := false;
    later_key := null;
    loop
      v_message_id := null;
      if (v_room > 0) is not false then
        insert into fairqueue.fq_message (
          channel_id, kind, content, headers, dequeue_at, enqueued_at, dedupe_key, priority, max_attempts, cost,
          group_id
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
      if r.key is not null then
        select m.id into v_message_id
        from fairqueue.fq_message m
        where m.channel_id = v_channel_id
          and m.dedupe_key = r.key;
        if found then
          if r.on_duplicate = 'replace' or (v_later_channel = v_channel and v_later_key = r.key) then
            v_later := true;
            v_later_channel := v_channel;
            v_later_key := r.key;
            later_key := r.key;
            outcome := case when r.on_duplicate = 'replace' then 'replaced' else 'duplicate' end;
          else
            outcome := 'duplicate';
          end if;
          exit;
        end if;
      end if;
      if v_room <= 0 then
        outcome := case when v_drop then 'dropped' else 'full' end;
        exit;
      end if;
      -- The message that held the key has just been completed, or one was added: try again.
    end loop;

    if outcome in ('created', 'dropped') then
      v_channel_ids := v_channel_ids || v_channel_id;
      v_ats := v_ats || v_at;
      v_ids := v_ids || v_message_id;
      v_outcomes := v_outcomes || outcome;
      v_bounded := v_bounded || (v_max_backlog is not null);
      if created and r.priority is not null and v_at > p_now then
        insert into fairqueue.fq_promotion (queue, due_at, message_id)
        values (p_queue, v_at, v_message_id);
      end if;
    end if;
    ordinal := r.ord;
    message_id := v_message_id;
    channel_id := v_channel_id;
    dequeue_at := v_at;
    is_bounded := v_max_backlog is not null;
    return next;
  end loop;
  if not v_later and v_outcomes <> '{}' then
    perform fairqueue.fq_tell_enqueued(p_queue, v_channel_ids, v_ats, v_ids, v_outcomes, v_bounded, p_notify);
  end if;
end
$$;
