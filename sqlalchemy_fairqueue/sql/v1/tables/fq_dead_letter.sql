-- Messages that will not be tried again, whole, with the reason.
create table fairqueue.fq_dead_letter (
  message_id bigint not null,
  queue text collate "C" not null,
  channel_id bigint not null,
  kind text not null,
  content bytea not null,
  headers jsonb,
  dedupe_key text collate "C",
  enqueued_at bigint not null,
  attempts integer not null,
  max_attempts integer not null,
  deliveries integer not null,
  reason text not null,
  error text,
  died_at bigint not null,
  constraint fq_dead_letter_pkey primary key (message_id)
);
create index fq_dead_letter_died_ix on fairqueue.fq_dead_letter (queue, died_at);
