-- Messages that will not be tried again, whole, with the reason. holds: other messages of its ordering key wait.
create table fairqueue.fq_dead_letter (
  message_id bigint not null,
  queue text collate "C" not null,
  channel_id bigint not null,
  kind text not null,
  content bytea not null,
  headers jsonb,
  key text collate "C",
  enqueued_at bigint not null,
  attempts integer not null,
  max_attempts integer not null,
  deliveries integer not null,
  reason text not null,
  error text,
  died_at bigint not null,
  priority integer,
  cost integer,
  ordering_key text collate "C",
  holds boolean not null default false,
  constraint fq_dead_letter_pkey primary key (message_id),
  constraint fq_dead_letter_content_check check (
    octet_length(content) <= 268435456 and octet_length(kind) between 1 and 512
    and octet_length(key) between 1 and 512 and octet_length(reason) <= 1048576
    and octet_length(error) <= 1048576
  ),
  constraint fq_dead_letter_headers_check check (
    octet_length(headers::text) <= 65536
  ),
  constraint fq_dead_letter_times_check check (
    enqueued_at between 0 and 253402300799999999 and died_at between 0 and 253402300799999999
  ),
  constraint fq_dead_letter_counts_check check (
    message_id > 0 and attempts >= 0 and max_attempts >= 1
    and deliveries >= 0
  )
);
create index fq_dead_letter_channel_ix on fairqueue.fq_dead_letter (channel_id, died_at, message_id);
create index fq_dead_letter_holds_ix on fairqueue.fq_dead_letter (channel_id, ordering_key) where holds;
create index fq_dead_letter_kind_ix on fairqueue.fq_dead_letter (queue, kind, died_at, message_id);
create index fq_dead_letter_died_ix on fairqueue.fq_dead_letter (queue, died_at);
