-- A message whose key has a period that is counted from its end ends when its row is deleted, however that comes. Other
-- messages cost the condition.
create trigger fq_message_key_ended
after delete on fairqueue.fq_message
for each row
when (old.key_outlives)
execute function fairqueue.fq_end_key();
