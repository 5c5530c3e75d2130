-- One row for each plan: a named policy of a queue, which channels follow (fq_channel_plan). policy has all fields that
-- fq_changed_policy knows. revision grows with each change, even if the plan is removed and made anew. The dispatcher
-- brings a change to the channels in the order of their ids. spread_after: the last one that was visited (null: all
-- have the change; the greatest number: all were visited); spread_again: those that were passed by, since they were
-- locked or had to wait; spread_at: when to go on. Written by fq_configure_plan and fq_spread_plans.
create table fairqueue.fq_plan (
  queue text collate "C" not null,
  name text collate "C" not null,
  policy jsonb not null,
  revision bigint not null,
  spread_after bigint,
  spread_again bigint[],
  spread_at bigint not null default 0,
  constraint fq_plan_pkey primary key (queue, name),
  constraint fq_plan_names_check check (
    octet_length(queue) between 1 and 512 and octet_length(name) between 1 and 512
  ),
  constraint fq_plan_policy_check check (jsonb_typeof(policy) = 'object' and octet_length(policy::text) <= 65536),
  constraint fq_plan_spread_check check (
    revision >= 0 and spread_after >= 0 and spread_at between 0 and 253402300799999999
  )
)
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100);
