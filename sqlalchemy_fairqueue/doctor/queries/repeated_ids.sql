-- How many dead letters have the id of a message. Reads the dead letters from the least message id on.
select count(*)
from fairqueue.fq_dead_letter d
where d.message_id >= (
    select min(m.id)
    from fairqueue.fq_message m
  )
  and exists (
    select
    from fairqueue.fq_message m
    where m.id = d.message_id
  )
