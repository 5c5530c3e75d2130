-- A member of a group that is not leased, or that was cancelled, ends when its row is deleted, by whatever statement.
-- The functions that end leased members note these themselves, once a call. For other messages only the condition is
-- evaluated.
create trigger fq_message_member_ended
after delete on fairqueue.fq_message
for each row
when (old.group_id is not null and (old.lease_id is null or old.cancelled))
execute function fairqueue.fq_end_member();
