-- One row a configured queue: the policy that channels made from now on start with (default_*), and what holds for the
-- whole queue (the rest; max_concurrency is the limit of all its channels together).
-- Written by fq_configure_queue, fq_limit_queue, fq_record_queue, fq_pause and fq_resume.
-- A queue without a row works: its channels take the policy that their first enqueue brings. has_defaults is false
-- where the row is there for other reasons.
create table fairqueue.fq_queue (
  name text collate "C" not null,
  has_defaults boolean not null default true,
  default_max_concurrency integer,
  default_rate_interval bigint not null default 0,
  default_rate_burst integer not null default 1,
  default_weight integer not null default 1,
  default_max_backlog integer,
  default_drop_when_full boolean not null default false,
  max_concurrency integer,
  paused_at bigint,
  history boolean not null default false,
  history_retention bigint,
  constraint fq_queue_pkey primary key (name),
  constraint fq_queue_policy_check check (
    (default_max_concurrency is null or default_max_concurrency >= 1)
    and default_rate_interval >= 0
    and default_rate_burst >= 1
    and default_weight >= 1
  ),
  constraint fq_queue_limits_check check (max_concurrency >= 1 and history_retention >= 1 and default_max_backlog >= 1)
);
