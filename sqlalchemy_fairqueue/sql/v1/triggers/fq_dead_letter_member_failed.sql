-- A member of a group that becomes a dead letter has failed.
create trigger fq_dead_letter_member_failed
after insert on fairqueue.fq_dead_letter
for each row
execute function fairqueue.fq_fail_member();
