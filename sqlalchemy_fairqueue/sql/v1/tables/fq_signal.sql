-- Notes that transactions append for the dispatcher: "this channel has a message at (dequeue_at, message_id)", "so many
-- were added, so many dropped", "n slots are free again, whose messages cost so much" (freed, freed_cost: of the
-- channel; queue_freed, queue_freed_cost: of the queue), "its messages cost so much more than was charged" (cost),
-- "they took so long" (took), "the next one of this ordering key may go" (ordering_key). bounded: fq_channel_room
-- counts it. xid: the transaction that left it. Who hears a signal deletes it, so below heard_below of
-- fq_queue_state there are only signals of the transactions in heard_open.
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
