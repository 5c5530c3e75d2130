-- The design that the project started from: the channel row carries a pointer to its head message and is updated by every enqueue,
-- and a dequeue takes one message of the least recently served channel and moves the pointer on. Milliseconds, as there.
-- Leases are added: a dequeued message stays, marked, until it is completed, as on our side. As there, a completion gives the slot back
-- on the channel row.
create schema head;
create table head.channel (
  id bigint generated always as identity primary key,
  queue text not null,
  name text not null,
  max_concurrency integer,
  rate_interval bigint not null default 0,
  current_concurrency integer not null default 0,
  head_message_id bigint,
  head_dequeue_at bigint,
  last_dequeue_at bigint not null default 0,
  next_dequeue_at bigint,
  unique (queue, name)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index channel_ready_ix on head.channel (queue, next_dequeue_at, id)
  where head_message_id is not null
    and (max_concurrency is null or current_concurrency < max_concurrency);
create table head.message (
  id bigint generated always as identity primary key,
  channel_id bigint not null,
  kind text not null,
  content bytea not null,
  headers jsonb,
  dequeue_at bigint not null,
  enqueued_at bigint not null,
  attempts integer not null default 0,
  max_attempts integer not null,
  deliveries integer not null default 0,
  lease_id bigint
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index message_ready_ix on head.message (channel_id, dequeue_at, id) where lease_id is null;

create function head.now_ms() returns bigint language sql volatile as $$
  select (extract(epoch from clock_timestamp()) * 1000)::bigint
$$;

create function head.enqueue(p_queue text, p_channel text, p_content bytea) returns bigint language plpgsql
set plan_cache_mode = force_generic_plan as $$
declare
  v_now bigint := head.now_ms();
  v_channel_id bigint;
  v_id bigint;
begin
  -- The channel row is locked from here to the commit of the business transaction.
  insert into head.channel as c (queue, name) values (p_queue, p_channel)
  on conflict (queue, name) do update set name = excluded.name
  returning c.id into v_channel_id;
  insert into head.message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)
  values (v_channel_id, 'default', p_content, v_now, v_now * 1000, 20)
  returning id into v_id;
  update head.channel c
  set head_message_id = v_id,
    head_dequeue_at = v_now,
    next_dequeue_at = greatest(v_now, c.last_dequeue_at + c.rate_interval)
  where c.id = v_channel_id
    and (c.head_message_id is null or (v_now, v_id) < (c.head_dequeue_at, c.head_message_id));
  return v_id;
end
$$;

create function head.dequeue(p_queue text, p_lease_id bigint)
returns table (message_id bigint, channel text, content bytea)
language plpgsql
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_now bigint := head.now_ms();
  v_channel head.channel;
  v_next record;
begin
  select c.* into v_channel
  from head.channel c
  where c.queue = p_queue
    and c.head_message_id is not null
    and (c.max_concurrency is null or c.current_concurrency < c.max_concurrency)
    and c.next_dequeue_at <= v_now
  order by c.queue, c.next_dequeue_at, c.id
  limit 1
  for update skip locked;
  if not found then
    return;
  end if;
  return query
  update head.message m
  set lease_id = p_lease_id,
    attempts = m.attempts + 1,
    deliveries = m.deliveries + 1
  where m.id = v_channel.head_message_id
  returning m.id, v_channel.name, m.content;
  select m.id, m.dequeue_at into v_next
  from head.message m
  where m.channel_id = v_channel.id
    and m.lease_id is null
  order by m.channel_id, m.dequeue_at, m.id
  limit 1;
  update head.channel c
  set head_message_id = v_next.id,
    head_dequeue_at = v_next.dequeue_at,
    last_dequeue_at = v_now,
    current_concurrency = c.current_concurrency + 1,
    next_dequeue_at = greatest(v_next.dequeue_at, v_now + c.rate_interval)
  where c.id = v_channel.id;
end
$$;

create function head.complete(p_id bigint, p_lease_id bigint) returns integer language plpgsql
set plan_cache_mode = force_generic_plan as $$
declare
  v_channel_id bigint;
begin
  delete from head.message m
  where m.id = p_id
    and m.lease_id = p_lease_id
  returning m.channel_id into v_channel_id;
  if not found then
    return 0;
  end if;
  update head.channel c
  set current_concurrency = c.current_concurrency - 1
  where c.id = v_channel_id;
  return 1;
end
$$;
