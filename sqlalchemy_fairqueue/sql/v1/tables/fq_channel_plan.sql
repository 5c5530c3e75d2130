-- One row for each channel that follows a plan or was configured by itself. plan: null: none; overridden: the fields of
-- its policy that were configured for it alone; revision: that of the plan when the state row got its policy. The
-- policy itself is in fq_channel_state. Written while that row is locked, or made with it. A plan that was removed
-- while a transaction was making the channel counts as none.
create table fairqueue.fq_channel_plan (
  channel_id bigint not null,
  queue text collate "C" not null,
  plan text collate "C",
  overridden text[] collate "C" not null default '{}',
  revision bigint not null default 0,
  constraint fq_channel_plan_pkey primary key (channel_id),
  constraint fq_channel_plan_check check (
    octet_length(queue) between 1 and 512 and octet_length(plan) between 1 and 512
    and cardinality(overridden) <= 100 and revision >= 0
  )
)
with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index fq_channel_plan_followers_ix on fairqueue.fq_channel_plan (queue, plan, channel_id)
  where plan is not null;
