-- See fq_end_ordering. For other messages only the condition is evaluated.
create trigger fq_message_ordering_ended
after delete or update of ordering_key on fairqueue.fq_message
for each row
when (old.ordering_key is not null and (old.lease_id is null or old.cancelled))
execute function fairqueue.fq_end_ordering();
