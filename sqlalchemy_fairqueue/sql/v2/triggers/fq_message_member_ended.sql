-- A member of a group that nobody holds, or that was cancelled, ends when its row is deleted, however that comes. Those
-- that consumers hold are noted by the functions that end them, a call at once. Other messages cost the condition.
create trigger fq_message_member_ended
after delete on fairqueue.fq_message
for each row
when (old.group_id is not null and (old.lease_id is null or old.cancelled))
execute function fairqueue.fq_end_member();
