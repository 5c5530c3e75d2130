-- A queue has one state row, as a channel has.
create trigger fq_queue_state_single
before insert on fairqueue.fq_queue_state
for each row
execute function fairqueue.fq_check_queue_state();
