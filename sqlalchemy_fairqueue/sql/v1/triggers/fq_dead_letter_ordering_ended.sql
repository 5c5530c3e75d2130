-- When a dead letter that holds its ordering key is redriven or purged, the next message of the key may go.
create trigger fq_dead_letter_ordering_ended
after delete on fairqueue.fq_dead_letter
for each row
when (old.holds)
execute function fairqueue.fq_end_ordering();
