-- The gate of each queue that was ever dequeued or limited: 64 parts and a door (part -1). A dequeue locks a part, one
-- that no other has as long as there are enough; a change of the queue's limits locks the door and all parts. No
-- dequeue goes on while the door's xmax is an open transaction. limited: the queue has a limit or a rate. Written by
-- fq_open_queue and fq_lock_gate.
create table fairqueue.fq_gate (
  queue text collate "C" not null,
  part smallint not null,
  limited boolean not null default false,
  constraint fq_gate_pkey primary key (queue, part),
  constraint fq_gate_check check (octet_length(queue) between 1 and 512 and part between -1 and 63)
);
