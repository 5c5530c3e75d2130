-- One row for each consumer of a queue that an operator has asked to stop. It stays, since several processes may have
-- the consumer's name, and each reads it. fq_prune_expired deletes it when it is an hour old.
create table fairqueue.fq_stop_request (
  queue text collate "C" not null,
  consumer text collate "C" not null,
  requested_by text not null,
  requested_at bigint not null,
  constraint fq_stop_request_pkey primary key (queue, consumer),
  constraint fq_stop_request_check check (
    octet_length(queue) between 1 and 512 and octet_length(consumer) between 1 and 512
    and octet_length(requested_by) between 1 and 512 and requested_at between 0 and 253402300799999999
  )
);
