-- One row a configured queue: the policy that channels made from now on start with, and what holds for the whole queue.
-- Written by fq_configure_queue, fq_limit_queue, fq_record_queue, fq_pause and fq_resume.
-- A queue without a row works: its channels take the policy that their first enqueue brings. has_policy is false where
-- the row is there for other reasons.
create table fairqueue.fq_queue (
  name text collate "C" not null,
  has_policy boolean not null default true,
  max_concurrency integer,
  rate_interval bigint not null default 0,
  rate_burst integer not null default 1,
  weight integer not null default 1,
  max_backlog integer,
  drop_when_full boolean not null default false,
  global_max_concurrency integer,
  paused_at bigint,
  history boolean not null default false,
  history_retention bigint,
  constraint fq_queue_pkey primary key (name),
  constraint fq_queue_policy_check check (
    (max_concurrency is null or max_concurrency >= 1)
    and rate_interval >= 0
    and rate_burst >= 1
    and weight >= 1
  ),
  constraint fq_queue_limits_check check (global_max_concurrency >= 1 and history_retention >= 1 and max_backlog >= 1)
);
