-- fq_configure_channel: change the policy of one channel, in the caller's transaction. p_changes: the fields to change,
-- as fq_changed_policy takes them; the others stay. A new channel is made as by fq_make_channels, with p_policy.
-- Guarantees: takes effect on the next dequeue after the commit. The locked state row is changed, so concurrent changes
-- of different fields both last. No limit is broken: leased messages are counted when max_concurrency is set, and each
-- frees what its own row says it holds, so that the count is right however the limit is set, lowered and lifted. A
-- signal lets the next hearing find the channel, whatever hints the consumers keep. When max_backlog is set, the
-- backlog is counted anew. p_notify: wake waiting consumers.
-- Locks: the channel's state row; if max_concurrency is set, its leased messages that hold no slot, in the order of
-- their ids; waits for a transaction that has one. Until the commit the channel is not served (dequeue passes by), and
-- nobody waits for it.
-- Index: fq_channel_state_newest_ix, fq_lease_expires_ix, fq_message_lease_ix; counting reads the channel's stretch of
-- fq_message_ready_ix and the queue's signals.
-- Errors: QF001 bad policy or name; 40001; QF007.
create function fairqueue.fq_configure_channel(
  p_queue text,
  p_channel text,
  p_changes jsonb,
  p_policy jsonb default null,
  p_notify boolean default false
)
returns void
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
declare
  v_now bigint := fairqueue.fq_now();
  v_channel_id bigint;
  v_row tid;
  v_before jsonb;
  v_policy fairqueue.fq_channel_state;
  v_marked integer := 0;
  v_backlog bigint;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  perform fairqueue.fq_make_channels(p_queue, array[p_channel]::text[], p_policy);
  select c.id into strict v_channel_id
  from fairqueue.fq_channel c
  where c.queue = p_queue
    and c.name = p_channel;
  select s.ctid, to_jsonb(s) into strict v_row, v_before
  from fairqueue.fq_channel_state s
  where s.channel_id = v_channel_id
  order by s.channel_id desc, s.turn desc
  limit 1
  for no key update;
  v_policy := jsonb_populate_record(
    null::fairqueue.fq_channel_state, fairqueue.fq_changed_policy(v_before, p_changes)
  );

  if p_changes ->> 'max_concurrency' is not null then
    perform fairqueue.fq_hold_leased(p_queue, 1::integer, v_channel_id);
    -- A new statement, which sees the commits that it waited for.
    update fairqueue.fq_message m
    set slots = m.slots | 1
    from fairqueue.fq_lease e
    where e.queue = p_queue
      and m.lease_id = e.id
      and m.channel_id = v_channel_id
      and m.slots & 1 = 0;
    get diagnostics v_marked = row_count;
  end if;

  -- One statement, one snapshot: nobody else applies signals of a channel whose state row is locked.
  if p_changes ->> 'max_backlog' is not null then
    select (
      select count(*)
      from fairqueue.fq_message m
      where m.channel_id = v_channel_id
        and m.lease_id is null
    ) - (
      select coalesce(sum(g.added), 0)
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.channel_id = v_channel_id
    )
    into v_backlog;
  end if;

  with configured as (
    update fairqueue.fq_channel_state s
    set turn = s.turn + 1,
      max_concurrency = v_policy.max_concurrency,
      rate_interval = v_policy.rate_interval,
      rate_burst = v_policy.rate_burst,
      weight = v_policy.weight,
      max_backlog = v_policy.max_backlog,
      drop_when_full = v_policy.drop_when_full,
      priority_aging = v_policy.priority_aging,
      configured = true,
      backlog = coalesce(v_backlog, s.backlog),
      current_concurrency = s.current_concurrency + v_marked,
      credit = least(s.credit, v_policy.weight),
      rate_at = n.rate_at,
      next_dequeue_at = case
        when s.next_dequeue_at is null then null
        -- of a start tag the place is found anew by the next hearing
        when s.next_dequeue_at < 0 then greatest(0, n.allowed_at)
        when s.next_dequeue_at <= v_now then greatest(s.next_dequeue_at, n.allowed_at)
        else greatest(s.head_dequeue_at, s.last_dequeue_at, n.allowed_at)
      end
    from (
      select r.rate_at,
        fairqueue.fq_rate_allows_at(r.rate_at, v_policy.rate_interval, v_policy.rate_burst) as allowed_at
      from (
        select least(o.rate_at, v_now + v_policy.rate_burst * v_policy.rate_interval) as rate_at
        from fairqueue.fq_channel_state o
        where o.ctid = v_row
      ) r
    ) n
    where s.ctid = v_row
      and s.channel_id = v_channel_id
    returning s.head_dequeue_at, s.head_message_id, s.next_dequeue_at
  )
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
  select p_queue, v_channel_id, c.head_dequeue_at, c.head_message_id
  from configured c
  where c.next_dequeue_at is not null;
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
end
$$;
