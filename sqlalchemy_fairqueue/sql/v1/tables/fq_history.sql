-- One row for each attempt that has ended, in queues that record their history. Rows are only appended; a day is taken
-- away by dropping its partition. The default partition takes rows of days without a partition, so an insert never
-- fails. The default of id is a sequence and no identity, which servers before version 17 do not give to partitions.
-- Readers go on after (recorded_xid, id), since ids commit out of order.
create table fairqueue.fq_history (
  id bigserial not null,
  queue text collate "C" not null,
  channel_id bigint not null,
  channel text collate "C" not null,
  message_id bigint not null,
  kind text not null,
  consumer text,
  attempt integer not null,
  enqueued_at bigint not null,
  ready_at bigint not null,
  started_at bigint not null,
  finished_at bigint not null,
  outcome text not null,
  error text,
  recorded_xid xid8 not null default pg_current_xact_id(),
  cost bigint not null default 1,
  group_id uuid,
  constraint fq_history_outcome_check check (
    outcome in ('completed', 'retried', 'released', 'buried', 'expired', 'cancelled')
  )
)
partition by range (finished_at);
create index fq_history_recorded_ix on fairqueue.fq_history (recorded_xid, id);
create index fq_history_id_ix on fairqueue.fq_history using brin (id);
create index fq_history_message_ix on fairqueue.fq_history (message_id);
create table fairqueue.fq_history_default partition of fairqueue.fq_history default;
alter table fairqueue.fq_history_default replica identity full;
