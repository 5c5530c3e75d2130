-- The queues of a shared limit: one live row a queue and limit, written under the lock of the limit's state. tag: what
-- the queue has drawn, in virtual time; until contends_until it has messages that the limit held back. Versioned like
-- fq_limit_state.
create table fairqueue.fq_limit_share (
  limit_name text collate "C" not null,
  queue text collate "C" not null,
  row_version bigint not null default 0,
  tag bigint not null default 0,
  contends_until bigint not null default 0,
  constraint fq_limit_share_values_check check (
    row_version between 0 and 4611686018427387903 and tag between 0 and 4611686018427387903
    and contends_until between 0 and 253402300799999999
  )
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_limit_share replica identity full;
create index fq_limit_share_newest_ix on fairqueue.fq_limit_share (limit_name, queue, row_version);
