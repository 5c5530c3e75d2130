-- One row for each duty of the housekeeping, whose lock lets one transaction do it at a time. fold: of fq_fold_groups.
-- Notes of transactions before the id in snapshot are folded, but for those of waiting, which were open at the last
-- fold. forget: of fq_forget_channels, while a round is under way. Its channels are those whose marks snapshot sees;
-- waiting: the transactions that ran when it began, may not have seen the marks, and have not ended since. history: of
-- fq_keep_history.
create table fairqueue.fq_round (
  duty text collate "C" not null,
  snapshot text,
  waiting text[] not null default '{}',
  constraint fq_round_pkey primary key (duty),
  constraint fq_round_check check (duty in ('fold', 'forget', 'history'))
);
