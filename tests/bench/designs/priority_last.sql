-- Time first: only what is due is read, but all of it, and then sorted: a backlog of due tasks is read by every dequeue.
create index task_priority_last_ix on priority.task (dequeue_at, priority, id) where started_at is null;
