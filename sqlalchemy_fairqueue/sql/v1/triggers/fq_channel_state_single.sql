-- A channel has one state row, and a state row its channel. No index could say so without reading all versions of a row
-- at each update.
create trigger fq_channel_state_single
after insert on fairqueue.fq_channel_state
referencing new table as made
for each statement
execute function fairqueue.fq_check_channel_state();
