-- One row a duty of the housekeeping, whose lock lets one transaction do it at a time.
-- fold: of fq_fold_groups. Notes of transactions before the id in snapshot are folded, but for those of waiting, which
-- were open at the last fold. forget: of fq_forget_channels, while a round is under way. Channels whose marks snapshot
-- sees are of the round; waiting are the transactions that ran then and may not have seen the marks, without those that
-- have ended since. history: of fq_keep_history.
create table fairqueue.fq_round (
  duty text collate "C" not null,
  snapshot text,
  waiting text[] not null default '{}',
  constraint fq_round_pkey primary key (duty),
  constraint fq_round_check check (duty in ('fold', 'forget', 'history'))
);
