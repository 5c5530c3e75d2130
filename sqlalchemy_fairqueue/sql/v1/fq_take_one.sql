-- fq_take_one: lease the first message of the channel that fq_choose_one has locked (p_chosen), and charge the channel.
-- It costs half of the way for many; fq_dequeue takes it if no quota in cost counts. p_sight: of fq_attend.
-- Returns the message, its cost, and has_more: the channel has another message that is due. message_id null: others
-- have all due messages locked, or more wait for their ordering keys than are moved at once (then the channel is due
-- again in 10 ms), or all wait for their ordering keys.
-- Guarantees: the next head is the least message that was not taken, even if another transaction has it locked.
-- Locks: the message, for no key update, skip locked. Index: fq_message_ready_ix; rows by ctid. Errors: none.
create function fairqueue.fq_take_one(
  p_queue text, p_sight record, p_chosen record, p_lease_id bigint, p_now bigint,
  out message_id bigint, out row_id tid, out channel_id bigint, out channel text, out kind text, out content bytea,
  out headers jsonb, out ordering_key text, out enqueued_at bigint, out attempt integer, out max_attempts integer,
  out deliveries integer, out cost bigint, out has_more boolean
)
language plpgsql
as $$
declare
  v_channel fairqueue.fq_channel_state := p_chosen.state;
  v_charge bigint;
  v_got integer := 1;
  v_head record;
  v_next bigint[];
  v_rate_at bigint := v_channel.rate_at;
  v_tag bigint;
  v_opens_at bigint;
begin
  for v_try in 0..3 loop
    select x.ctid as row, x.ordering_key, x.id
    into v_head
    from fairqueue.fq_message x
    where x.channel_id = v_channel.channel_id
      and x.lease_id is null
      and (x.dequeue_at, x.id) >= (v_channel.head_dequeue_at, v_channel.head_message_id)
      and x.dequeue_at <= p_now
    order by x.channel_id, x.dequeue_at, x.id
    limit 1
    for no key update skip locked;
    -- Also if none was found.
    exit when v_head.ordering_key is null;
    exit when (
      select g.goes
      from fairqueue.fq_goes_first(v_channel.channel_id, v_head.ordering_key::text, v_head.id::bigint) g
    );
    v_head.row := null;
    exit when (fairqueue.fq_hold_back(
      p_queue, array[v_channel.channel_id]::bigint[], array[v_channel.head_dequeue_at]::bigint[],
      array[v_channel.head_message_id]::bigint[], array[1]::integer[], (20 * 4 ^ v_try)::integer, p_now
    )).moved = 0;
  end loop;
  if v_head.row is not null then
    update fairqueue.fq_message m
    set lease_id = p_lease_id,
      attempts = m.attempts + 1,
      deliveries = m.deliveries + 1,
      slots = case when p_chosen.is_limited then 1 else 0 end + case when p_sight.is_limited then 2 else 0 end,
      delivered_at = case when p_sight.history then p_now end,
      charged = case
        when p_sight.is_timed then coalesce(m.cost, fairqueue.fq_estimate(v_channel.mean_cost, true::boolean))
      end
    where m.ctid = v_head.row
    returning m.id, m.ctid, m.channel_id, (
        select c.name
        from fairqueue.fq_channel c
        where c.id = v_channel.channel_id
      ), m.kind, m.content, m.headers, m.ordering_key, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries,
      fairqueue.fq_charged(m.charged, m.cost::integer),
      (
        select array[x.dequeue_at, x.id]
        from fairqueue.fq_message x
        where x.channel_id = v_channel.channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) >= (v_channel.head_dequeue_at, v_channel.head_message_id)
          and x.id <> m.id
        order by x.channel_id, x.dequeue_at, x.id
        limit 1
      )
    into message_id, row_id, channel_id, channel, kind, content, headers, ordering_key, enqueued_at, attempt,
      max_attempts, deliveries, cost, v_next;
    v_rate_at := greatest(v_rate_at, p_now) + v_channel.rate_interval;
  else
    v_got := 0;
    cost := 0;
    select array[h.heads_at[1], h.head_ids[1]] into v_next
    from fairqueue.fq_find_heads(
      array[v_channel.channel_id]::bigint[], array[v_channel.head_dequeue_at]::bigint[],
      array[v_channel.head_message_id]::bigint[], '{}'::bigint[]
    ) h;
  end if;
  has_more := (v_got = 1 and v_next[1] <= p_now) is true;
  -- What fq_charge does: to call it would cost more than its run.
  v_charge := case when p_sight.by_cost then cost else v_got end;
  v_tag := fairqueue.fq_tag_after(v_channel.tag, v_channel.tag_rest, v_charge, v_channel.weight);
  v_opens_at := fairqueue.fq_opens_at(
    (case when v_got = 0 and v_next[1] <= p_now then p_now + 10000 else v_next[1] end)::bigint,
    v_channel.paused_at, (v_channel.current_concurrency + v_got < v_channel.max_concurrency)::boolean, v_rate_at,
    v_channel.rate_interval, v_channel.rate_burst
  );
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    current_concurrency = s.current_concurrency + case when p_chosen.is_limited then v_got else 0 end,
    current_cost = s.current_cost + case when p_chosen.is_limited then cost else 0 end,
    backlog = fairqueue.fq_backlog_after(
      s.backlog, v_got, v_next[1]::bigint, p_queue, p_sight.state::fairqueue.fq_queue_state
    ),
    rate_at = v_rate_at,
    head_dequeue_at = v_next[1],
    head_message_id = v_next[2],
    last_dequeue_at = case when v_got > 0 then p_now else s.last_dequeue_at end,
    tag = v_tag,
    tag_rest = fairqueue.fq_tag_rest(s.tag_rest, v_charge, s.weight, v_next[1]::bigint),
    ready_tag = case when v_opens_at <= p_now then v_tag end,
    due_at = case when v_opens_at > p_now then v_opens_at end
  where s.ctid = p_chosen.row;
  if p_sight.dispatch_row is null and v_opens_at > p_now then
    insert into fairqueue.fq_signal (queue, channel_id)
    values (p_queue, v_channel.channel_id);
  end if;
end
$$;
