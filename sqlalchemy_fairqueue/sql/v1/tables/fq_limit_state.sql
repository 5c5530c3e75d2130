-- What the queues of a shared limit have drawn from it: one live row a limit, which each dequeue of those queues locks.
-- rate_at: as in fq_queue_state; virtual_time: the tag of the queue that drew last. Versioned like fq_channel_state and
-- for the same reasons: no unique index, every update sets row_version = row_version + 1, the newest version is found
-- first.
create table fairqueue.fq_limit_state (
  limit_name text collate "C" not null,
  row_version bigint not null default 0,
  rate_at bigint not null default 0,
  virtual_time bigint not null default 0,
  constraint fq_limit_state_values_check check (
    row_version between 0 and 4611686018427387903 and rate_at between 0 and 253402300799999999
    and virtual_time between 0 and 4611686018427387903
  )
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_limit_state replica identity full;
create index fq_limit_state_newest_ix on fairqueue.fq_limit_state (limit_name, row_version);
