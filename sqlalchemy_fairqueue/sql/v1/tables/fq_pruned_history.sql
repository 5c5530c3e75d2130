-- What fq_keep_history has taken away: one row for each day of which a call took attempts, with the last of these in
-- the order of (recorded_xid, id). A reader that had not come as far as that attempt has missed some; one that had,
-- none. Rows are written one transaction after the other, so ids commit in order.
create table fairqueue.fq_pruned_history (
  id bigint generated always as identity,
  finished_from bigint not null,
  finished_until bigint not null,
  recorded_xid xid8 not null,
  history_id bigint not null,
  pruned_at bigint not null,
  constraint fq_pruned_history_pkey primary key (id),
  constraint fq_pruned_history_check check (
    history_id > 0 and finished_from < finished_until and pruned_at between 0 and 253402300799999999
  )
);
