-- Two indexes: by priority the scan passes all urgent tasks that are not due, by time it reads and sorts all that are due.
-- Where many urgent ones wait for their time while many others are due, either reads what it cannot use.
create index task_priority_ix on priority.task (priority, id) where started_at is null;
create index task_due_ix on priority.task (dequeue_at) where started_at is null;
