-- Priority first: no sorting, but the scan begins at the most urgent, due or not: a backlog of urgent tasks for later is read by every dequeue.
-- From PostgreSQL 18 on a scan can skip from one priority to the next; with many priorities that is as many descents.
create index task_priority_first_ix on priority.task (priority, dequeue_at, id) where started_at is null;
