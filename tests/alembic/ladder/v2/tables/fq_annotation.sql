-- One row a note on a message, whether the message is still there or not.
create table fairqueue.fq_note (
  id bigint generated always as identity,
  message_id bigint not null,
  note text not null,
  constraint fq_note_pkey primary key (id)
);
create index fq_note_message_ix on fairqueue.fq_note (message_id);
