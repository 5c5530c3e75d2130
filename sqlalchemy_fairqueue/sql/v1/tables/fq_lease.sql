-- One row a claim of a consumer: extending it is one row, however many messages it holds.
create table fairqueue.fq_lease (
  id bigint not null,
  queue text collate "C" not null,
  consumer text not null,
  expires_at bigint not null,
  constraint fq_lease_pkey primary key (id)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);
create index fq_lease_expires_ix on fairqueue.fq_lease (queue, expires_at, id);
