-- The append-only notes that transactions leave for the dispatcher: "this channel has a message at (dequeue_at,
-- message_id)", "this channel has n slots free again", "so many were added, and so many dropped".
create table fairqueue.fq_signal (
  queue text collate "C" not null,
  id bigint generated always as identity,
  channel_id bigint not null,
  dequeue_at bigint,
  message_id bigint,
  added integer not null default 0,
  freed integer not null default 0,
  queue_freed integer not null default 0,
  dropped integer not null default 0,
  bounded boolean not null default false,
  constraint fq_signal_pkey primary key (queue, id),
  constraint fq_signal_counts_check check (
    added between -2000000000 and 2000000000 and freed between 0 and 2000000000
    and queue_freed between 0 and 2000000000 and dropped between 0 and 2000000000
  ),
  constraint fq_signal_head_check check (
    num_nulls(dequeue_at, message_id) in (0, 2) and message_id > 0
    and dequeue_at between -2147483648 and 253402300799999999
  )
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index fq_signal_bounded_ix on fairqueue.fq_signal (channel_id, id) where bounded;
