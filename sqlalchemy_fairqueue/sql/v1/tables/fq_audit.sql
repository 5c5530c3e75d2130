-- One row for each thing that an operator did to a queue, a channel or a message, or (queue null) to the installation.
-- fq_prune_expired deletes it after 90 days.
create table fairqueue.fq_audit (
  audit_id uuid not null default gen_random_uuid(),
  at bigint not null,
  queue text collate "C",
  who text not null,
  what text not null,
  channel text collate "C",
  message_id bigint,
  details jsonb,
  constraint fq_audit_pkey primary key (at, audit_id),
  constraint fq_audit_check check (
    octet_length(queue) between 1 and 512 and octet_length(channel) between 1 and 512
    and octet_length(who) between 1 and 512 and octet_length(what) between 1 and 512
    and message_id > 0 and octet_length(details::text) <= 65536 and at between 0 and 253402300799999999
  )
);
create index fq_audit_queue_ix on fairqueue.fq_audit (queue, at);
