-- One row for each bulk load that was committed, by the name of its job: the same job again adds nothing. Of a stream,
-- the last micro-batch. Only fq_merge writes it. A row may be deleted when its job will not be tried again.
create table fairqueue.fq_load (
  queue text collate "C" not null,
  job_id text collate "C" not null,
  batch_id bigint,
  source text,
  messages bigint not null,
  created bigint not null,
  replaced bigint not null,
  duplicates bigint not null,
  dropped bigint not null,
  rejected bigint not null,
  committed_at bigint not null,
  constraint fq_load_pkey primary key (queue, job_id),
  constraint fq_load_job_id_check check (octet_length(job_id) between 1 and 512),
  constraint fq_load_counts_check check (
    octet_length(queue) between 1 and 512 and batch_id >= 0 and messages >= 0 and created >= 0 and replaced >= 0
    and duplicates >= 0 and dropped >= 0 and rejected >= 0 and committed_at between 0 and 253402300799999999
  )
);
