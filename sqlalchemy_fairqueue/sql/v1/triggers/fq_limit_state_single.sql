-- A shared limit has one state row, as a channel has.
create trigger fq_limit_state_single
before insert on fairqueue.fq_limit_state
for each row
execute function fairqueue.fq_check_limit_state();
