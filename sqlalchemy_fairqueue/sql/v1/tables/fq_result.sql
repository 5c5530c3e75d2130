-- One row for each message that has ended in a queue that keeps results, until housekeeping deletes it after
-- expires_at. outcome: 'completed': content is what its handler returned, encoded as payloads are (null: None);
-- 'unkept': it is completed, and problem says why there is no content; 'cancelled'. A dead letter says itself what
-- failed, and has no row here.
create table fairqueue.fq_result (
  message_id bigint not null,
  queue text collate "C" not null,
  channel text collate "C" not null,
  kind text not null,
  outcome text not null,
  content bytea,
  problem text,
  finished_at bigint not null,
  expires_at bigint not null,
  constraint fq_result_pkey primary key (message_id),
  constraint fq_result_outcome_check check (outcome in ('completed', 'unkept', 'cancelled')),
  constraint fq_result_content_check check (octet_length(content) <= 1048576 and octet_length(problem) <= 65536)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index fq_result_expires_ix on fairqueue.fq_result (expires_at);
