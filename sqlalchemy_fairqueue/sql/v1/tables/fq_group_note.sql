-- Notes that transactions append for fq_fold_groups: "so many members were added to this group", "these ended". No
-- transaction but the fold updates the row of a group. id: one of the messages that ended; 0: members were added.
create table fairqueue.fq_group_note (
  xid xid8 not null default pg_current_xact_id(),
  id bigint not null,
  group_id uuid not null,
  added integer not null default 0,
  done integer not null default 0,
  failed integer not null default 0,
  cancelled integer not null default 0,
  constraint fq_group_note_pkey primary key (xid, id, group_id)
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
