-- However a member of a group ends, its row is deleted. Messages without a group cost the condition.
create trigger fq_message_member_ended
after delete on fairqueue.fq_message
for each row
when (old.group_id is not null)
execute function fairqueue.fq_end_member();
