-- One row for each schedule: what it enqueues, and when. Every slot up to done_until is done: run, or passed over by
-- catch_up. next_at: the slot after it, as the last worker that planned it found it. due_at: when a worker is to look
-- at the row again; null while it is paused. revision: raised by every change that makes a worker's earlier plan of its
-- slots wrong.
create table fairqueue.fq_schedule (
  id bigint generated always as identity,
  queue text collate "C" not null,
  channel text collate "C" not null,
  name text collate "C" not null,
  cron text,
  timezone text,
  every bigint,
  catch_up text not null,
  jitter bigint not null,
  kind text not null,
  content bytea not null,
  headers jsonb,
  max_attempts integer not null,
  policy jsonb,
  in_code boolean not null,
  revision bigint not null default 0,
  anchor_at bigint not null,
  done_until bigint not null,
  next_at bigint,
  due_at bigint,
  paused_at bigint,
  last_slot_at bigint,
  last_run_at bigint,
  last_message_id bigint,
  problem text,
  problem_at bigint,
  created_at bigint not null,
  changed_at bigint not null,
  ordering_key text collate "C",
  constraint fq_schedule_pkey primary key (id),
  constraint fq_schedule_name_key unique (queue, channel, name),
  constraint fq_schedule_names_check check (
    octet_length(queue) between 1 and 512 and octet_length(channel) between 1 and 512
    and octet_length(name) between 1 and 512 and octet_length(kind) between 1 and 512
  ),
  constraint fq_schedule_times_check check (
    num_nonnulls(cron, every) = 1 and num_nonnulls(cron, timezone) <> 1
    and octet_length(cron) between 1 and 512 and octet_length(timezone) between 1 and 512
    and every between 1000000 and 3153600000000000 and jitter between 0 and 3153600000000000
    and catch_up in ('skip', 'last', 'all')
  ),
  constraint fq_schedule_message_check check (
    octet_length(content) <= 268435456 and octet_length(headers::text) <= 65536 and max_attempts >= 1
    and octet_length(problem) <= 65536 and octet_length(ordering_key) between 1 and 512
  )
);
create index fq_schedule_due_ix on fairqueue.fq_schedule (queue, due_at) where due_at is not null;
