-- The messages with a priority that are due later, and when: fq_promote gives each its position then. If a message ends
-- before, its row stays until then. There is no unique index on purpose: nobody who enqueues waits for a dispatcher
-- that deletes a row.
create table fairqueue.fq_promotion (
  queue text collate "C" not null,
  due_at bigint not null,
  message_id bigint not null
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_promotion replica identity full;
create index fq_promotion_due_ix on fairqueue.fq_promotion (queue, due_at, message_id);
