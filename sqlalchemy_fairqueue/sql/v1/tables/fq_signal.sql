-- The append-only notes that transactions leave for the dispatcher: "this channel has a message at (dequeue_at, message_id)", "this channel has n slots free again".
create table fairqueue.fq_signal (
  queue text collate "C" not null,
  id bigint generated always as identity,
  channel_id bigint not null,
  dequeue_at bigint,
  message_id bigint,
  freed integer not null default 0,
  constraint fq_signal_pkey primary key (queue, id)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
