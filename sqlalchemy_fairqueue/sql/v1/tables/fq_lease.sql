-- One row for each lease of a consumer: to extend it updates one row, however many messages it has. Until waiting_until
-- the consumer waits, and producers wake it. version and concurrency are the library's and the worker's, written once
-- by fq_stop_requests; null: the consumer is no worker, or has not told them yet.
create table fairqueue.fq_lease (
  id bigint not null,
  queue text collate "C" not null,
  consumer text not null,
  expires_at bigint not null,
  waiting_until bigint,
  epoch bigint not null default 0,
  version text,
  concurrency integer,
  constraint fq_lease_pkey primary key (id)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);
create index fq_lease_expires_ix on fairqueue.fq_lease (queue, expires_at, id);
create index fq_lease_waiting_ix on fairqueue.fq_lease (queue, waiting_until) where waiting_until is not null;
