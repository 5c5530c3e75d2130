-- fq_enqueue: add messages to a queue's channels, in the caller's transaction. Arrays of one length in, a row each out.
-- Guarantees: all or nothing with the caller's transaction; one signal a channel. outcome: 'created'; 'duplicate': a
-- message of the channel, message_id, has the key (p_on_duplicates skip or raise; for raise the caller raises);
-- 'replaced' (p_on_duplicates replace): the undelivered message that had the key got this content, kind, headers and
-- time, and no attempts; a leased one gives its key up to the new message, which is 'created'. 'full', 'dropped': the
-- channel has max_backlog undelivered messages, committed or of this transaction; by its policy the caller raises, or
-- the message is counted and forgotten (message_id null). 'coalesced' (p_on_duplicates coalesce): another message of
-- the ordering key, message_id, waits, and is not delivered before this transaction ends.
-- p_policy: of new channels, if the queue has no defaults. p_delays: microseconds from now; p_ats: microseconds since
-- the epoch (the past means now); a message has at most one of the two. p_priorities: from 1, see fq_promote. p_costs:
-- what its delivery costs its channel, up to 10^9; null: fq_estimate. p_groups: the groups that created messages belong
-- to; a replaced message stays in its own. p_counts_members: this transaction has made these groups, and the call
-- counts the created members as fq_join_group does, one note a group. p_unique_fors: for how many microseconds the key
-- stays taken, from this call on, or with p_from_ends from the end of the message; null: while the message lives. Until
-- then a message with a period is a 'duplicate' of it, however it ended; with replace, a message that nobody has leased
-- is 'replaced', and the period begins anew. Messages without a period meet living ones alone. p_ordering_keys: of a
-- channel's messages with the same one, one is out at a time, in the order of their ids; a replaced message takes the
-- new one. p_headers, p_groups: an array of one element holds for all messages. A bad value is always refused.
-- Locks: channels and keys, in the order (channel, key), COLLATE "C": the first use of a channel waits for a
-- transaction that is making the same one, a key for one that adds, takes, ends or withdraws the message that has it.
-- Then, in the order of their ids, messages to replace and those of p_hold (which the transaction settles or cancels
-- later); if a message to replace has ended by then, the call undoes everything and begins again, since no transaction
-- may wait for a key while it has a message locked. Then, for share, skip locked, the messages that others coalesce
-- with. Nothing else waits, and no row is touched that others update. p_notify: wake consumers (not in a two-phase
-- transaction).
-- Index: fq_channel_queue_name_key, fq_message_key, fq_channel_state_newest_ix, fq_signal_bounded_ix,
-- fq_key_period_pkey, fq_group_pkey. Errors: QF001 bad argument, or p_counts_members and a group that is another
-- queue's or another transaction's; QF011 a content that is too long; 40001 as fq_make_channels, for a key whose holder
-- changed or whose period began since the snapshot, and under SERIALIZABLE for two at one bounded channel; QF007.
create function fairqueue.fq_enqueue(
  p_queue text, p_channels text[], p_kinds text[], p_contents bytea[], p_headers jsonb[], p_delays bigint[],
  p_ats bigint[], p_priorities integer[], p_keys text[], p_max_attempts integer[], p_policy jsonb default null,
  p_on_duplicates text[] default null, p_notify boolean default false, p_hold bigint[] default null,
  p_costs integer[] default null, p_groups uuid[] default null, p_unique_fors bigint[] default null,
  p_from_ends boolean[] default null, p_counts_members boolean default false,
  p_ordering_keys text[] default null
)
returns table (ordinal integer, message_id bigint, created boolean, outcome text)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_channel record;
  v_state fairqueue.fq_channel_state;
  v_at bigint;
  v_added record;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(
      array['producer', 'loader']::text[], p_queue, coalesce(p_channels, '{}'::text[])::text[]
    )
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  -- One message without a bad value. The arrays must begin at 1: elements before that would be passed over.
  if concat(
      array_dims(p_channels), array_dims(p_kinds), array_dims(p_contents), array_dims(p_headers), array_dims(p_delays),
      array_dims(p_ats), array_dims(p_priorities), array_dims(p_keys), array_dims(p_max_attempts)
    ) = repeat('[1:1]', 9)
    and concat(
      array_dims(p_on_duplicates), array_dims(p_costs), array_dims(p_groups), array_dims(p_unique_fors),
      array_dims(p_from_ends), array_dims(p_ordering_keys)
    ) = repeat(
      '[1:1]', num_nonnulls(p_on_duplicates, p_costs, p_groups, p_unique_fors, p_from_ends, p_ordering_keys)
    )
    and not p_counts_members
    and p_on_duplicates[1] is distinct from 'coalesce'
    and fairqueue.fq_bad_argument(
      p_channels[1]::text, p_kinds[1]::text, p_contents[1]::bytea, p_headers[1]::jsonb, p_delays[1]::bigint,
      p_ats[1]::bigint, p_priorities[1]::integer, p_keys[1]::text, p_max_attempts[1]::integer,
      p_on_duplicates[1]::text, p_costs[1]::integer, p_unique_fors[1]::bigint,
      p_ordering_keys[1]::text
    ) is null
  then
    -- Most are added by one statement: to start more of them would cost more than their run.
    if p_unique_fors[1] is null and num_nonnulls(p_delays[1], p_ats[1], p_priorities[1]) <= 1 then
      return query
      with added as (
        insert into fairqueue.fq_message as m (
          channel_id, kind, content, headers, dequeue_at, enqueued_at, key, priority, max_attempts, cost,
          group_id, ordering_key
        )
        select c.id, p_kinds[1], p_contents[1], p_headers[1],
          fairqueue.fq_dequeue_at(
            v_now, p_delays[1]::bigint, p_ats[1]::bigint, p_priorities[1]::integer, s.priority_aging
          ), v_now, p_keys[1], p_priorities[1], coalesce(p_max_attempts[1], 20), p_costs[1], p_groups[1],
          p_ordering_keys[1]
        from fairqueue.fq_channel c
        cross join lateral (
          select n.priority_aging, fairqueue.fq_takes_any(n.*, false::boolean) as takes_any
          from fairqueue.fq_channel_state n
          where n.channel_id = c.id
          order by n.channel_id desc, n.row_version desc
          limit 1
        ) s
        where c.queue = p_queue
          and c.name = p_channels[1]
          and s.takes_any
        on conflict (channel_id, key) where key is not null do nothing
        returning m.id, m.channel_id, m.dequeue_at
      )
      insert into fairqueue.fq_signal as s (queue, channel_id, dequeue_at, message_id, added)
      select p_queue, a.channel_id, a.dequeue_at, a.id, 1
      from added a
      returning 1, s.message_id, true, 'created';
      outcome := case when found then 'created' end;
    end if;
    -- A message to replace is locked together with p_hold, which fq_enqueue_many does.
    if outcome is null and (p_hold is null or p_on_duplicates[1] is distinct from 'replace') then
      v_channel := fairqueue.fq_channel_room(p_queue, p_channels[1]::text, p_policy);
      v_state := v_channel.state;
      v_at := fairqueue.fq_dequeue_at(
        v_now, p_delays[1]::bigint, p_ats[1]::bigint, p_priorities[1]::integer, v_state.priority_aging
      );
      v_added := fairqueue.fq_add_message(
        p_queue, p_channels[1]::text, v_state, v_channel.room::bigint, p_kinds[1]::text, p_contents[1]::bytea,
        p_headers[1]::jsonb, v_at, p_priorities[1]::integer, p_keys[1]::text, p_max_attempts[1]::integer,
        p_on_duplicates[1]::text, p_costs[1]::integer, p_groups[1]::uuid, p_unique_fors[1]::bigint,
        p_from_ends[1]::boolean, p_ordering_keys[1]::text, (fairqueue.fq_next_ids(1::integer))[1]::bigint,
        v_now, true::boolean, false::boolean
      );
      outcome := v_added.outcome;
      created := outcome = 'created';
      if outcome in ('created', 'replaced', 'dropped') then
        insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, dropped, bounded)
        values (
          p_queue, v_state.channel_id, case when outcome <> 'dropped' then v_at end, v_added.message_id,
          created::integer, (outcome = 'dropped')::integer, created and v_state.max_backlog is not null
        );
      end if;
      return query
      select 1, v_added.message_id, created, outcome;
    end if;
    if p_notify and outcome in ('created', 'replaced') then
      perform fairqueue.fq_wake(p_queue);
    end if;
    if outcome is not null then
      return;
    end if;
  end if;
  return query
  select e.*
  from fairqueue.fq_enqueue_many(
    p_queue, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
    p_policy, p_on_duplicates, p_notify, p_hold, p_costs, p_groups, p_unique_fors, p_from_ends, p_counts_members,
    p_ordering_keys, v_now
  ) e
  where cardinality(p_channels) > 0;
end
$$;
