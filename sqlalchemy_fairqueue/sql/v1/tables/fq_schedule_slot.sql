-- One row for each slot that was run, inserted with its message: a slot is run once. message_id null: the channel was
-- full, and its policy is to drop. fq_prune_expired deletes rows after a week.
create table fairqueue.fq_schedule_slot (
  schedule_id bigint not null,
  slot_at bigint not null,
  message_id bigint,
  ran_at bigint not null,
  constraint fq_schedule_slot_pkey primary key (schedule_id, slot_at),
  constraint fq_schedule_slot_check check (
    message_id > 0 and slot_at between 0 and 253402300799999999 and ran_at between 0 and 253402300799999999
  )
);
