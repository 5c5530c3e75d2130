-- One row for each configured queue. defaults: the policy of channels made from now on, with all fields that
-- fq_changed_policy knows; a field that it lacks has its initial value. max_concurrency, max_cost_out and the rate are
-- those of all channels together; limits: the names of the shared limits that it draws from, sorted.
-- default_plan: the plan that new channels follow, before defaults. plans: it has, or had, plans. result_retention: for
-- how many microseconds results of handlers are kept; null: none is kept. on_dead: messages of an ordering key
-- 'continue' behind a dead letter, or 'hold' until it is redriven or purged. on_dead_kinds: the kinds whose dead
-- letters are followed by a message, see fq_bury_messages.
-- Written by fq_set_queue, fq_configure_plan, fq_limit_queue, fq_pause and fq_follow_dead. A queue without a row, or
-- without defaults, works: its channels take the policy that their first enqueue brings.
create table fairqueue.fq_queue (
  name text collate "C" not null,
  defaults jsonb,
  max_concurrency integer,
  max_cost_out integer,
  rate_interval bigint not null default 0,
  rate_burst integer not null default 1,
  rate_of text collate "C" not null default 'messages',
  limits text[] collate "C",
  paused_at bigint,
  history boolean not null default false,
  history_retention bigint,
  dead_letter_retention bigint,
  dead_letter_retention_by_kind jsonb,
  forget_channels_after bigint default 2592000000000,
  fair_by text not null default 'messages',
  default_plan text collate "C",
  plans boolean not null default false,
  result_retention bigint,
  on_dead text not null default 'continue',
  on_dead_kinds text[] collate "C",
  constraint fq_queue_pkey primary key (name),
  constraint fq_queue_names_check check (
    octet_length(name) between 1 and 512 and octet_length(default_plan) between 1 and 512
  ),
  constraint fq_queue_times_check check (
    paused_at between 0 and 253402300799999999 and history_retention between 1 and 3153600000000000
    and forget_channels_after between 1 and 3153600000000000
  ),
  constraint fq_queue_defaults_check check (
    jsonb_typeof(defaults) = 'object' and octet_length(defaults::text) <= 65536
  ),
  constraint fq_queue_limits_check check (
    max_concurrency >= 1 and rate_interval between 0 and 31536000000000 and rate_burst between 1 and 1000000000
    and max_cost_out >= 1 and rate_of in ('messages', 'cost')
  ),
  constraint fq_queue_fair_by_check check (fair_by in ('messages', 'cost', 'seconds')),
  constraint fq_queue_on_dead_check check (on_dead in ('continue', 'hold')),
  constraint fq_queue_results_check check (result_retention between 1 and 3153600000000000),
  constraint fq_queue_shared_limits_check check (cardinality(limits) between 1 and 16),
  constraint fq_queue_dead_letters_check check (
    dead_letter_retention between 1 and 3153600000000000 and jsonb_typeof(dead_letter_retention_by_kind) = 'object'
  )
);
