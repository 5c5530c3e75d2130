-- When a message with an ordering key is deleted, by whatever statement, or gets another key, the next message of the
-- key may go. For other messages only the condition is evaluated.
create trigger fq_message_ordering_ended
after delete or update of ordering_key on fairqueue.fq_message
for each row
when (old.ordering_key is not null)
execute function fairqueue.fq_end_ordering();
