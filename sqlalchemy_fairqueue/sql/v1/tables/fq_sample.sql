-- How a queue stood in a minute, and up to 20 of its channels: one row each, that of the queue without a name of a
-- channel. ready and oldest_wait are of the moment, the wait in microseconds, 0 if nothing was ready. served and failed
-- are the attempts that ended since the row before: null where that is not known. Of the queue's row: snapshot, up to
-- which these were counted; took, how long the call took that wrote it. Written by fq_keep_samples, which deletes what
-- is older than 25 hours.
create table fairqueue.fq_sample (
  queue text collate "C" not null,
  at bigint not null,
  channel text collate "C" not null,
  ready bigint not null,
  oldest_wait bigint not null,
  served bigint,
  failed bigint,
  snapshot text,
  took bigint,
  constraint fq_sample_pkey primary key (queue, at, channel),
  constraint fq_sample_check check (
    octet_length(queue) between 1 and 512 and octet_length(channel) <= 512
    and at between 0 and 253402300799999999 and least(ready, oldest_wait, served, failed, took) >= 0
  )
);
