-- The history that the server writes: one row with a random number, which is gone after each crash, failover and restore
-- of files, as the table is not in the log. A restore of a dump brings a row whose xmin is not written_by, which does not
-- count. Each lease names its epoch, and none of another epoch is used again: a token that was lost together with its
-- delivery is never given a second time.
create unlogged table fairqueue.fq_epoch (
  one boolean not null default true,
  value bigint not null,
  written_by xid,
  constraint fq_epoch_pkey primary key (one),
  constraint fq_epoch_check check (one)
);
