-- The epoch of the server: one row with a random number. The table is unlogged, so each crash, failover and restore of
-- a backup empties it. A row that a dump brings does not count: its xmin is not written_by. Nor does one of before the
-- server was started, since its files may be an old copy. Each lease names its epoch, and no dequeue of another epoch
-- uses it again: a token that was lost together with its delivery is never given a second time.
create unlogged table fairqueue.fq_epoch (
  one boolean not null default true,
  value bigint not null,
  written_by xid,
  started_at timestamptz not null default pg_postmaster_start_time(),
  constraint fq_epoch_pkey primary key (one),
  constraint fq_epoch_check check (one)
);
