-- The append-only notes that transactions leave for the dispatcher: "this channel has a message at (dequeue_at,
-- message_id)", "this channel has n slots free again, whose messages cost so much" (freed, freed_cost), "so many were
-- added, and so many dropped", "its messages cost so much more than was charged" (cost), "they took so long" (took),
-- "the next one of this ordering key may go" (ordering_key). xid: the transaction that left it. New are the signals of
-- transactions that the last complete hearing did not see: fq_queue_state has the snapshot of it.
create table fairqueue.fq_signal (
  queue text collate "C" not null,
  xid xid8 not null default pg_current_xact_id(),
  id bigint generated always as identity,
  channel_id bigint not null,
  dequeue_at bigint,
  message_id bigint,
  added integer not null default 0,
  freed integer not null default 0,
  queue_freed integer not null default 0,
  dropped integer not null default 0,
  bounded boolean not null default false,
  cost bigint,
  took bigint,
  freed_cost bigint,
  queue_freed_cost bigint,
  ordering_key text collate "C",
  constraint fq_signal_pkey primary key (queue, xid, id)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index fq_signal_bounded_ix on fairqueue.fq_signal (channel_id, id) where bounded;
