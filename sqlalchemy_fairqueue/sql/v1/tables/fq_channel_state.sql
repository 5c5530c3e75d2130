-- One live row a channel, updated by the dispatcher alone (and by configuration).
-- tag: where its next message starts in virtual time, in 2520ths of a cost of 1 at weight 1, counted from -9 * 10^18
-- on; next_dequeue_at is the tag while the channel is ready, and a time otherwise, so that one index has the ready order
-- first. tag_rest: what of its costs the tag does not have yet, by weight; below zero it is a credit.
-- Without a unique index on purpose: a plain index keeps every update a non-key update, and (channel_id, row_version)
-- finds the newest version first however many dead ones an old snapshot keeps.
-- problem: why it was paused by fq_set_aside.
-- configured: whether the channel was configured by itself; then it is never forgotten. used_at: when it was made, or
-- last kept from being forgotten. forget_xid: the transaction that marked the channel as idle, see fq_forget_channels.
-- Replica identity full, or a publication of all tables refuses the updates.
create table fairqueue.fq_channel_state (
  channel_id bigint not null,
  row_version bigint not null default 0,
  queue text collate "C" not null,
  max_concurrency integer,
  rate_interval bigint not null default 0,
  rate_burst integer not null default 1,
  weight integer not null default 1,
  current_concurrency integer not null default 0,
  head_dequeue_at bigint,
  head_message_id bigint,
  last_dequeue_at bigint not null default 0,
  next_dequeue_at bigint,
  rate_at bigint not null default 0,
  max_backlog integer,
  backlog bigint not null default 0,
  dropped bigint not null default 0,
  heard_id bigint not null default 0,
  paused_at bigint,
  on_full text collate "C" not null default 'raise',
  priority_aging bigint,
  configured boolean not null default false,
  used_at bigint not null default 0,
  forget_xid xid8,
  tag bigint,
  tag_rest bigint,
  problem text,
  max_payload_bytes integer
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_channel_state replica identity full;
create index fq_channel_state_newest_ix on fairqueue.fq_channel_state (channel_id, row_version);
create index fq_channel_state_ready_ix on fairqueue.fq_channel_state (queue, next_dequeue_at, channel_id)
  where next_dequeue_at is not null
    and (max_concurrency is null or current_concurrency < max_concurrency);
create index fq_channel_state_tag_ix on fairqueue.fq_channel_state (queue, tag)
  where tag is not null
    and (next_dequeue_at is null or next_dequeue_at >= 0);
create index fq_channel_state_held_back_ix on fairqueue.fq_channel_state (queue, channel_id)
  where head_message_id is not null
    and (next_dequeue_at is null or current_concurrency >= max_concurrency);
create index fq_channel_state_forget_ix on fairqueue.fq_channel_state (queue, channel_id)
  where forget_xid is not null;
create index fq_channel_state_dropped_ix on fairqueue.fq_channel_state (queue, channel_id)
  where dropped > 0;
