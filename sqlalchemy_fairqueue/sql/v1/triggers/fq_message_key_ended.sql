-- The period of a key may be counted from the end of its message. It begins when the row of the message is deleted, by
-- whatever statement. For other messages only the condition is evaluated.
create trigger fq_message_key_ended
after delete on fairqueue.fq_message
for each row
when (old.key_outlives)
execute function fairqueue.fq_end_key();
