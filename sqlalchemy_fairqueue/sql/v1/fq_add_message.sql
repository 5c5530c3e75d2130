-- fq_add_message: add one message to a channel that is there, or find out why not. p_state: the channel's row; p_id,
-- p_at: the message's id and position; p_room: how many messages the channel still takes (null: any). p_replaces: it
-- may replace the message that has its key; p_is_rewritten: another message of the call replaces it again.
-- Guarantees: the id and the outcome as in fq_enqueue; without p_replaces also 'later': it is to replace an undelivered
-- message. The caller leaves the signal. The period of a key is read first, and written once the transaction has the
-- key; if another message has got the period meanwhile, this one is deleted again. A savepoint would not do: who waits
-- for the key would go on waiting after a savepoint of the caller is rolled back.
-- Locks: with p_replaces the message that has the key; the key; the row of its period: waits for who has one. Index:
-- fq_message_key, fq_message_pkey, fq_key_period_pkey, fq_key_period_ends_ix. Errors: 40001; QF011.
create function fairqueue.fq_add_message(
  p_queue text, p_channel text, p_state fairqueue.fq_channel_state, p_room bigint, p_kind text, p_content bytea,
  p_headers jsonb, p_at bigint, p_priority integer, p_key text, p_max_attempts integer, p_on_duplicate text,
  p_cost integer, p_group_id uuid, p_unique_for bigint, p_from_end boolean, p_ordering_key text,
  p_id bigint, p_now bigint, p_replaces boolean, p_is_rewritten boolean, out message_id bigint, out outcome text
)
language plpgsql
as $$
declare
  v_is_replacing boolean := p_key is not null and p_on_duplicate is not distinct from 'replace';
  v_now bigint;
  -- the message of the key's period; the living message that has the key
  v_owner bigint;
  v_holder bigint;
  v_lease_id bigint;
  v_added bigint;
begin
  if octet_length(p_content) > p_state.max_payload_bytes then
    raise exception 'the payload of a message for channel % has % bytes', left(p_channel, 80), octet_length(p_content)
      using errcode = 'QF011', hint = 'enqueue at most its max_payload_bytes, ' || p_state.max_payload_bytes;
  end if;
  loop
    v_holder := null;
    v_added := null;
    if v_is_replacing and p_replaces then
      select m.id, m.lease_id into v_holder, v_lease_id
      from fairqueue.fq_message m
      where m.channel_id = p_state.channel_id
        and m.key = p_key
      for no key update;
    end if;
    if p_unique_for is not null then
      v_now := fairqueue.fq_now();
      select k.message_id into v_owner
      from fairqueue.fq_key_period k
      where k.queue = p_queue
        and k.channel = p_channel
        and k.key = p_key
        and (
          k.expires_at > v_now
          or (k.expires_at is null and exists (select from fairqueue.fq_message m where m.id = k.message_id))
        );
    end if;
    if num_nonnulls(v_holder, v_owner) = 0 and (p_room > 0) is not false then
      insert into fairqueue.fq_message (
        id, channel_id, kind, content, headers, dequeue_at, enqueued_at, key, priority, max_attempts, cost,
        group_id, key_outlives, ordering_key
      )
      overriding system value
      values (
        p_id, p_state.channel_id, p_kind, p_content, p_headers, p_at, p_now, p_key, p_priority,
        coalesce(p_max_attempts, 20), p_cost, p_group_id, case when p_unique_for > 0 and p_from_end then true end,
        p_ordering_key
      )
      on conflict (channel_id, key) where key is not null do nothing
      returning id into v_added;
    end if;
    if v_added is null and v_holder is null and p_key is not null then
      select m.id, m.lease_id into v_holder, v_lease_id
      from fairqueue.fq_message m
      where m.channel_id = p_state.channel_id
        and m.key = p_key;
      -- again: lock it before it is replaced
      continue when found and v_is_replacing and p_replaces;
    end if;

    message_id := coalesce(v_added, v_holder);
    if message_id = v_added then
      outcome := 'created';
    elsif v_owner is not null and (v_is_replacing and v_owner = v_holder and v_lease_id is null) is not true then
      message_id := v_owner;
      outcome := 'duplicate';
    elsif v_holder is not null and not (v_is_replacing and p_replaces) then
      outcome := case when v_is_replacing then 'later' else 'duplicate' end;
    elsif v_holder is not null and v_lease_id is null then
      outcome := 'replaced';
      -- Each of many replacements would leave a version of the row that all later ones must pass by.
      if not p_is_rewritten or p_unique_for is not null then
        update fairqueue.fq_message m
        set kind = p_kind,
          content = p_content,
          headers = case when m.group_id is null then p_headers
            else coalesce(p_headers, '{}') || jsonb_build_object('group', m.group_id) end,
          dequeue_at = p_at,
          priority = p_priority,
          max_attempts = coalesce(p_max_attempts, 20),
          cost = p_cost,
          ordering_key = p_ordering_key,
          attempts = 0,
          returned_at = p_now,
          error = null,
          key_outlives = case
            when p_unique_for is null then m.key_outlives
            else p_from_end
              -- a period of the channel from which it was moved still waits for its end
              or exists (
                select
                from fairqueue.fq_key_period k
                where k.message_id = v_holder
                  and k.expires_at is null
                  and (k.queue, k.channel, k.key) <> (p_queue, p_channel, p_key)
              )
          end
        where m.id = v_holder;
      end if;
    elsif p_room <= 0 then
      message_id := null;
      outcome := case p_state.on_full when 'drop' then 'dropped' else 'full' end;
    else
      -- A leased message gives up its key. If none has it, the message that had it has just ended. Try again.
      update fairqueue.fq_message m
      set key = null
      where m.id = v_holder;
      continue;
    end if;
    exit when p_unique_for is null or outcome not in ('created', 'replaced');
    v_now := fairqueue.fq_now();
    insert into fairqueue.fq_key_period as k (queue, channel, key, message_id, unique_for, expires_at)
    values (
      p_queue, p_channel, p_key, message_id, p_unique_for, case when p_from_end is not true then v_now + p_unique_for end
    )
    on conflict on constraint fq_key_period_pkey do update
    set message_id = excluded.message_id,
      unique_for = excluded.unique_for,
      expires_at = excluded.expires_at
    where k.message_id = excluded.message_id
      or k.expires_at <= v_now
      or (k.expires_at is null and not exists (select from fairqueue.fq_message m where m.id = k.message_id));
    exit when found or v_added is null;
    delete from fairqueue.fq_message m
    where m.id = v_added;
    delete from fairqueue.fq_group_note n
    where (n.xid, n.id, n.group_id) = (pg_current_xact_id(), v_added, p_group_id);
  end loop;
  if p_priority is not null and p_at > p_now and outcome in ('created', 'replaced') then
    insert into fairqueue.fq_promotion (queue, due_at, message_id)
    values (p_queue, p_at, message_id);
  end if;
end
$$;
