-- The identity of a channel. The row is never updated, so that a look-up by name never meets dead versions. Only
-- fq_forget_channels deletes it.
create table fairqueue.fq_channel (
  id bigint generated always as identity,
  queue text collate "C" not null,
  name text collate "C" not null,
  constraint fq_channel_pkey primary key (id),
  constraint fq_channel_queue_name_key unique (queue, name),
  constraint fq_channel_name_check check (octet_length(name) between 1 and 512),
  constraint fq_channel_queue_check check (octet_length(queue) between 1 and 512)
);
