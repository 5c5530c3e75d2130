-- See fq_end_message. For other messages only the condition is evaluated.
create trigger fq_message_ended
after delete on fairqueue.fq_message
for each row
when (old.key_outlives or old.group_id is not null and (old.lease_id is null or old.cancelled))
execute function fairqueue.fq_end_message();
