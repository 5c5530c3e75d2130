-- The size of a table at an hour, with its indexes, in bytes; the partitions of the history together. Written by
-- fq_keep_samples for the ten largest tables, deleted by fq_prune_expired after eight days. fq_growth reads it.
create table fairqueue.fq_size (
  at bigint not null,
  name text collate "C" not null,
  bytes bigint not null,
  constraint fq_size_pkey primary key (at, name),
  constraint fq_size_check check (
    at between 0 and 253402300799999999 and octet_length(name) between 1 and 63 and bytes >= 0
  )
);
