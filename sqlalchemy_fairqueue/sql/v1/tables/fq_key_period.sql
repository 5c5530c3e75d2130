-- One row for each key with a period, which stays taken when its message has ended, until expires_at; housekeeping
-- deletes it later. expires_at null: the period of unique_for microseconds begins when the message ends, which
-- fq_message.key_outlives says. Rows name the channel, so that they outlast a channel that is forgotten.
create table fairqueue.fq_key_period (
  queue text collate "C" not null,
  channel text collate "C" not null,
  key text collate "C" not null,
  message_id bigint not null,
  unique_for bigint not null,
  expires_at bigint,
  constraint fq_key_period_pkey primary key (queue, channel, key),
  constraint fq_key_period_check check (unique_for >= 1)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index fq_key_period_ends_ix on fairqueue.fq_key_period (expires_at, message_id);
