-- One row for each group of messages. added, done, failed and cancelled: what fq_fold_groups has counted; later notes
-- are in fq_group_note. due_at: all of its members have ended, and it is to be finished then; null before and
-- afterwards. finished_at: when its follow-up, message_id, was enqueued; message_id null: it has none. waits: how often
-- the follow-up has waited in vain for a transaction that makes its channel or has its key.
create table fairqueue.fq_group (
  group_id uuid not null,
  queue text collate "C" not null,
  added bigint not null default 0,
  done bigint not null default 0,
  failed bigint not null default 0,
  cancelled bigint not null default 0,
  created_at bigint not null,
  created_xid xid8 not null default pg_current_xact_id(),
  due_at bigint,
  finished_at bigint,
  message_id bigint,
  problem text,
  waits integer not null default 0,
  constraint fq_group_pkey primary key (group_id)
);
create index fq_group_queue_ix on fairqueue.fq_group (queue, created_at, group_id);
create index fq_group_due_ix on fairqueue.fq_group (finished_at, due_at);
