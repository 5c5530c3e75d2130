-- One row a configured queue: the policy that channels made from now on start with.
-- Written by fq_configure_queue alone. A queue without a row works: its channels take the policy that their first enqueue brings.
create table fairqueue.fq_queue (
  name text collate "C" not null,
  max_concurrency integer,
  release_interval bigint not null default 0,
  release_burst integer not null default 1,
  weight integer not null default 1,
  constraint fq_queue_pkey primary key (name),
  constraint fq_queue_policy_check check (
    (max_concurrency is null or max_concurrency >= 1)
    and release_interval >= 0
    and release_burst >= 1
    and weight >= 1
  )
);
