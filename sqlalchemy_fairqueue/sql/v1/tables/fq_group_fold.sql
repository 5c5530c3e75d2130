-- The one row whose lock lets a transaction fold notes. Those of transactions before floor_xid are folded, but
-- for those of open_xids, which were open at the last fold.
create table fairqueue.fq_group_fold (
  single integer not null default 1,
  floor_xid xid8 not null,
  open_xids bigint[] not null default '{}',
  constraint fq_group_fold_pkey primary key (single),
  constraint fq_group_fold_check check (
    single = 1
  )
);
