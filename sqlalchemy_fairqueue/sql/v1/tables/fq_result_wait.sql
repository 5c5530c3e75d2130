-- One row for each waiter for the result of a message: until waiting_until, a transaction that ends the message
-- notifies the waiter.
create table fairqueue.fq_result_wait (
  message_id bigint not null,
  waiter uuid not null,
  waiting_until bigint not null,
  constraint fq_result_wait_pkey primary key (message_id, waiter)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
