-- The round in which marked channels are forgotten, one row at most. snapshot: channels whose marks it sees are of the
-- round. waiting: the transactions that ran then and may not have seen the marks, without those that have ended since.
-- Written by fq_forget_channels.
create table fairqueue.fq_forgetting (
  single integer not null default 1,
  snapshot text not null,
  waiting text[] not null,
  constraint fq_forgetting_pkey primary key (single),
  constraint fq_forgetting_check check (
    single = 1
  )
);
