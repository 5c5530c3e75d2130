-- The epoch of the server: one row with a random number. The table is unlogged, so each crash, failover and restore of
-- a backup empties it, but for a copy of the files of a server that was shut down. A row that a dump brings does not
-- count: its xmin is not written_by. Each lease names its epoch, and no dequeue of another epoch uses it again: a token
-- that a crash lost together with its delivery is never given a second time.
create unlogged table fairqueue.fq_epoch (
  one boolean not null default true,
  value bigint not null,
  written_by xid,
  constraint fq_epoch_pkey primary key (one),
  constraint fq_epoch_check check (one)
);
