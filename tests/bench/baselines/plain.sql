-- The unfair bound: one leased table in the order of arrival, the least that a queue under leases can do. Nobody gets a turn here.
-- The same columns as fq_message, so that both sides carry and return the same; the partial index finds what is ready.
create schema plain;
create table plain.message (
  id bigint generated always as identity,
  channel_id bigint not null,
  kind text not null,
  content bytea not null,
  headers jsonb,
  dequeue_at bigint not null,
  enqueued_at bigint not null,
  attempts integer not null default 0,
  max_attempts integer not null,
  deliveries integer not null default 0,
  lease_id bigint,
  constraint message_pkey primary key (id)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index message_ready_ix on plain.message (id) where lease_id is null;
