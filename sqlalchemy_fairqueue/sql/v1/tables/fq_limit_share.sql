-- What the queues of a shared limit have drawn from it: one live row for each queue and limit, and one with queue ''
-- for each limit, which a dequeue of those queues locks before it writes the others. tag: what the queue has drawn, in
-- virtual time, in messages or in cost, as the limit counts; of the limit, the tag of the queue that drew last.
-- rate_at: of the limit, as in fq_queue_state. Until contends_until the queue counts as held back by the limit.
-- Versioned like fq_channel_state and for the same reasons: no unique index, every update sets row_version =
-- row_version + 1, the newest version is found first.
create table fairqueue.fq_limit_share (
  limit_name text collate "C" not null,
  queue text collate "C" not null,
  row_version bigint not null default 0,
  tag bigint not null default 0,
  rate_at bigint not null default 0,
  contends_until bigint not null default 0
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_limit_share replica identity full;
create index fq_limit_share_newest_ix on fairqueue.fq_limit_share (limit_name, queue, row_version);
