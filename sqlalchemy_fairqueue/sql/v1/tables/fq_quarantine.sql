-- Messages that fq_set_aside took out of their queue and that no dead letter can hold: what could be read of them.
-- unreadable names the columns that could not. Nothing is checked here: a bad value is what brought the message here.
create table fairqueue.fq_quarantine (
  id bigint generated always as identity,
  message_id bigint not null,
  queue text collate "C" not null,
  channel_id bigint not null,
  kind text,
  content bytea,
  headers jsonb,
  dedupe_key text collate "C",
  enqueued_at bigint not null,
  attempts integer not null,
  max_attempts integer not null,
  deliveries integer not null,
  unreadable text[] not null,
  reason text not null,
  set_aside_at bigint not null,
  priority integer,
  constraint fq_quarantine_pkey primary key (id)
);
create index fq_quarantine_message_ix on fairqueue.fq_quarantine (queue, message_id);
