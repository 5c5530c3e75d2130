-- One row for each message, from enqueue to completion. dequeue_at: its position in its channel: the time when it is
-- due, or, once that has come, what fq_position makes of its priority. cost null: 1, or the mean of its channel if the
-- queue is fair by seconds. charged: what its channel was charged for it, in such a queue. slots: the bits of those
-- that it holds (1: its channel's, 2: the queue's). ordering_key: of a channel's messages with the same one, one is out
-- at a time. A message that a dequeue finds while another one goes first waits at the end of the channel, with the
-- greatest number as dequeue_at, until fq_let_go. cancelled_at, for people: when it was cancelled while it was leased;
-- others are deleted. No foreign key points at fq_channel: it would cost a multixact a transaction on a busy channel.
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
  channel_id, ordering_key, lease_id, (deliveries = 0), id
)
  where ordering_key is not null;
create index fq_message_held_ix on fairqueue.fq_message (channel_id, ordering_key)
  where dequeue_at = 9223372036854775807;
create unique index fq_message_key on fairqueue.fq_message (channel_id, key) where key is not null;
