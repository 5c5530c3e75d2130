-- The follow-ups of a group, until it is finished: the one for its failure, and the other one.
create table fairqueue.fq_group_followup (
  group_id uuid not null,
  on_failure boolean not null,
  channel text collate "C" not null,
  kind text not null,
  content bytea not null,
  headers jsonb,
  delay bigint,
  at bigint,
  priority integer,
  key text collate "C",
  max_attempts integer not null,
  policy jsonb,
  ordering_key text collate "C",
  constraint fq_group_followup_pkey primary key (group_id, on_failure)
);
