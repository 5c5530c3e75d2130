-- The state row of a channel: one live row, updated by the dispatcher and by configuration alone.
-- tag: where its next message starts in virtual time, in 2520ths of a cost of 1 at weight 1, counted from -9 * 10^18
-- on. tag_rest: the part of its costs, in 2520ths, that is not in the tag yet; below zero it is a credit. ready_tag:
-- the tag, while the channel may be served; due_at: when it may be, while it waits for a time. A channel that is empty,
-- paused or at its limit has neither; nor has one that was resumed or purged just now, until a signal is heard.
-- The columns that a dequeue changes are neighbours: an update logs a row from its first changed byte to its last.
-- There is no unique index on purpose: with a plain index every update is a non-key update, and (channel_id,
-- row_version) finds the newest version first, however many dead ones an old snapshot keeps.
-- current_concurrency, current_cost: the messages that hold a slot of its max_concurrency or max_cost_out, and what
-- they cost together. rate_of: its rate counts 'messages' or their 'cost'. mean_cost: what its messages took lately, in
-- a queue that is fair by seconds. problem: why fq_set_aside has paused it. configured: it was configured by itself,
-- and is never forgotten. used_at: when it was made, or last kept from being forgotten. forget_xid: the transaction
-- that marked it as idle (fq_mark_idle_channels). Replica identity full, or a publication of all tables refuses the
-- updates.
create table fairqueue.fq_channel_state (
  channel_id bigint not null,
  weight integer not null default 1,
  rate_burst integer not null default 1,
  rate_interval bigint not null default 0,
  configured boolean not null default false,
  used_at bigint not null default 0,
  row_version bigint not null default 0,
  heard_id bigint not null default 0,
  backlog bigint not null default 0,
  dropped bigint not null default 0,
  current_concurrency integer not null default 0,
  current_cost bigint not null default 0,
  last_dequeue_at bigint not null default 0,
  rate_at bigint not null default 0,
  head_dequeue_at bigint,
  head_message_id bigint,
  tag bigint,
  tag_rest bigint,
  ready_tag bigint,
  due_at bigint,
  mean_cost bigint,
  max_concurrency integer,
  max_cost_out integer,
  max_backlog integer,
  priority_aging bigint,
  paused_at bigint,
  forget_xid xid8,
  max_payload_bytes integer,
  on_full text collate "C" not null default 'raise',
  rate_of text collate "C" not null default 'messages',
  queue text collate "C" not null,
  problem text
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_channel_state replica identity full;
create index fq_channel_state_newest_ix on fairqueue.fq_channel_state (channel_id, row_version);
create index fq_channel_state_ready_ix on fairqueue.fq_channel_state (queue, ready_tag, channel_id)
  where ready_tag is not null;
create index fq_channel_state_due_ix on fairqueue.fq_channel_state (queue, due_at, channel_id)
  where due_at is not null;
create index fq_channel_state_tag_ix on fairqueue.fq_channel_state (queue, tag)
  where tag is not null
    and ready_tag is null;
create index fq_channel_state_held_back_ix on fairqueue.fq_channel_state (queue, channel_id)
  where head_message_id is not null
    and ready_tag is null
    and due_at is null;
create index fq_channel_state_forget_ix on fairqueue.fq_channel_state (queue, channel_id)
  where forget_xid is not null;
create index fq_channel_state_dropped_ix on fairqueue.fq_channel_state (queue, channel_id)
  where dropped > 0;
