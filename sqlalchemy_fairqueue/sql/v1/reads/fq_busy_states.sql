-- fq_busy_states: what the dispatcher knows of the channels of a queue that are not idle, see fq_busy_channels, and
-- what has happened since it looked. added, freed: what signals that nobody has heard will add to the backlog, and free
-- of the slots; leased: messages out. changed: whether the head of the state can be another than that of the messages,
-- since there is such a signal or a message out, or priorities age.
-- Guarantees: one query, which the planner inlines. Cost: one state row a channel with messages, and what the queue has
-- of leased messages and signals not heard. Locks: none.
-- Index: fq_channel_state_ready_ix, fq_channel_state_due_ix, and fq_channel_state_held_back_ix for channels that are paused or at their limit;
-- fq_channel_state_newest_ix, fq_signal_pkey, fq_lease_expires_ix, fq_message_lease_ix. Errors: none.
create function fairqueue.fq_busy_states(p_queue text)
returns table (
  channel_id bigint, max_concurrency integer, rate_interval bigint, rate_burst integer, rate_at bigint, weight integer,
  paused_at bigint, last_dequeue_at bigint, backlog bigint, current_concurrency integer, head_dequeue_at bigint,
  added bigint, freed bigint, leased bigint, changed boolean
)
language sql
stable
as $$
  with told as materialized (
    select g.channel_id, sum(g.added) as added, sum(g.freed) as freed
    from fairqueue.fq_signal g
    where g.queue = p_queue
    group by g.channel_id
  ),
  held as materialized (
    select m.channel_id, count(*) as messages
    from fairqueue.fq_lease e
    join fairqueue.fq_message m on m.lease_id = e.id
    where e.queue = p_queue
    group by m.channel_id
  ),
  known as (
    select s.channel_id, s.max_concurrency, s.rate_interval, s.rate_burst, s.rate_at, s.weight, s.paused_at,
      s.last_dequeue_at, s.backlog, s.current_concurrency, s.head_dequeue_at, s.priority_aging
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.ready_tag is not null
    union all
    select s.channel_id, s.max_concurrency, s.rate_interval, s.rate_burst, s.rate_at, s.weight, s.paused_at,
      s.last_dequeue_at, s.backlog, s.current_concurrency, s.head_dequeue_at, s.priority_aging
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.due_at is not null
    union all
    select s.channel_id, s.max_concurrency, s.rate_interval, s.rate_burst, s.rate_at, s.weight, s.paused_at,
      s.last_dequeue_at, s.backlog, s.current_concurrency, s.head_dequeue_at, s.priority_aging
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.head_message_id is not null
      and s.ready_tag is null
      and s.due_at is null
    union all
    -- Idle as far as the dispatcher knows.
    select s.channel_id, s.max_concurrency, s.rate_interval, s.rate_burst, s.rate_at, s.weight, s.paused_at,
      s.last_dequeue_at, s.backlog, s.current_concurrency, null, s.priority_aging
    from (
      select t.channel_id
      from told t
      union
      select h.channel_id
      from held h
    ) o
    cross join lateral (
      select v.*
      from fairqueue.fq_channel_state v
      where v.channel_id = o.channel_id
      order by v.channel_id desc, v.row_version desc
      limit 1
    ) s
    where num_nonnulls(s.ready_tag, s.due_at, s.head_message_id) = 0
  )
  select k.channel_id, k.max_concurrency, k.rate_interval, k.rate_burst, k.rate_at, k.weight, k.paused_at,
    k.last_dequeue_at, k.backlog, k.current_concurrency, k.head_dequeue_at, coalesce(t.added, 0), coalesce(t.freed, 0),
    coalesce(h.messages, 0),
    num_nonnulls(t.channel_id, h.channel_id, k.priority_aging) > 0 or (k.head_dequeue_at < 0) is true
  from known k
  left join told t on t.channel_id = k.channel_id
  left join held h on h.channel_id = k.channel_id
$$;
