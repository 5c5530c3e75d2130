-- One row a note on a message, whether the message is still there or not.
create table fairqueue.fq_annotation (
  id bigint generated always as identity,
  message_id bigint not null,
  note text not null,
  constraint fq_annotation_pkey primary key (id)
);
create index fq_annotation_message_ix on fairqueue.fq_annotation (message_id);
