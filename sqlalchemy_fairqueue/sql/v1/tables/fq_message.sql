-- One row a unit of work, from enqueue to completion. dequeue_at is its position in its channel: when it is due, or
-- once that has come what fq_position makes of its priority.
-- cost null: 1, or where the queue is fair by seconds the mean of its channel. charged: what its channel was charged
-- for it, in a queue that is fair by seconds. ordering_key: of messages of its channel that have the same, one is out
-- at a time. One that was found while another one goes first waits at the end of the channel, where dequeue_at is the
-- greatest number, until it is let go: see fq_let_go.
-- cancelled_at: when that was, for people. A message that nobody holds is deleted instead.
-- No foreign key points at fq_channel: it would cost a multixact a transaction on a busy channel.
create table fairqueue.fq_message (
  id bigint generated always as identity,
  channel_id bigint not null,
  kind text not null,
  content bytea not null,
  headers jsonb,
  dequeue_at bigint not null,
  enqueued_at bigint not null,
  key text collate "C",
  attempts integer not null default 0,
  max_attempts integer not null,
  deliveries integer not null default 0,
  lease_id bigint,
  delivered_at bigint,
  returned_at bigint,
  slots smallint not null default 0,
  cancelled boolean not null default false,
  error text,
  priority integer,
  cost integer,
  charged integer,
  group_id uuid,
  key_outlives boolean,
  ordering_key text collate "C",
  cancelled_at bigint,
  constraint fq_message_pkey primary key (id)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index fq_message_ready_ix on fairqueue.fq_message (channel_id, dequeue_at, id) where lease_id is null;
create index fq_message_lease_ix on fairqueue.fq_message (lease_id) where lease_id is not null;
create index fq_message_group_ix on fairqueue.fq_message (group_id) where group_id is not null;
create index fq_message_ordering_ix on fairqueue.fq_message (
  channel_id, ordering_key, lease_id, deliveries desc, id
)
  where ordering_key is not null;
create index fq_message_held_ix on fairqueue.fq_message (channel_id, ordering_key)
  where dequeue_at = 9223372036854775807;
create unique index fq_message_key on fairqueue.fq_message (channel_id, key) where key is not null;
