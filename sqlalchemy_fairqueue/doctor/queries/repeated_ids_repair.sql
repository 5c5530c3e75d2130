-- Gives dead letters with the id of a message new ids.
update fairqueue.fq_dead_letter d
set message_id = (fairqueue.fq_next_ids(1))[1]
where exists (
  select
  from fairqueue.fq_message m
  where m.id = d.message_id
);
