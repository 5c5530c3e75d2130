-- A member of a group that is put into quarantine has failed.
create trigger fq_quarantine_member_failed
after insert on fairqueue.fq_quarantine
for each row
execute function fairqueue.fq_fail_member();
