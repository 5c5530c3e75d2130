-- The count of a queue that has, or once had, a limit or a rate of all its channels together, and when its rate allows
-- the next message: one live row a queue, made by fq_limit_queue. Versioned like fq_channel_state and for the same
-- reasons: no unique index, every update sets row_version = row_version + 1, the newest version is found first.
create table fairqueue.fq_queue_state (
  queue text collate "C" not null,
  row_version bigint not null default 0,
  max_concurrency integer,
  current_concurrency integer not null default 0,
  rate_interval bigint not null default 0,
  rate_burst integer not null default 1,
  rate_at bigint not null default 0
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_queue_state replica identity full;
create index fq_queue_state_newest_ix on fairqueue.fq_queue_state (queue, row_version);
