-- The dispatch row of a queue: one live row, made by its first delivery or its first limit. A call that hears the
-- signals of the queue has it locked until its transaction ends; other dequeues pass it by, and only a change of the
-- queue's limits waits for it.
-- heard_below, heard_open: the last complete hearing has heard all signals of transactions below heard_below, but for
-- those in heard_open, which were open. ready_floor, ready_channel: the ready order begins there or later; still_since:
-- since when that place has not moved. due_floor: a channel with an earlier due_at has an unheard signal. lease_floor:
-- ten seconds ago, or when the first lease ended if that was before; a lease ends below it only if its transaction
-- lasted ten seconds longer than the lease, so ten times a second all leases are looked at, last at swept_at.
-- held_since: since when something is due that nobody can take, because it is locked. noted_at: when the row was
-- written. current_concurrency, current_cost, rate_at: of a queue that has, or had, a limit or a rate of all its
-- channels; limits and rate are those of fq_queue. owed_cost: corrections of costs that its shared limits do not know
-- yet. Versioned like fq_channel_state and for the same reasons: no unique index, every update sets row_version =
-- row_version + 1, the newest version is found first.
create table fairqueue.fq_queue_state (
  queue text collate "C" not null,
  row_version bigint not null default 0,
  max_concurrency integer,
  max_cost_out integer,
  current_concurrency integer not null default 0,
  current_cost bigint not null default 0,
  owed_cost bigint not null default 0,
  rate_interval bigint not null default 0,
  rate_burst integer not null default 1,
  rate_of text collate "C" not null default 'messages',
  rate_at bigint not null default 0,
  heard_below xid8 not null default '0',
  heard_open xid8[] not null default '{}',
  ready_floor bigint not null default -9223372036854775808,
  ready_channel bigint not null default 0,
  still_since bigint not null default 0,
  due_floor bigint not null default 0,
  lease_floor bigint not null default 0,
  swept_at bigint not null default 0,
  held_since bigint,
  noted_at bigint not null default 0
)
with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);
alter table fairqueue.fq_queue_state replica identity full;
create index fq_queue_state_newest_ix on fairqueue.fq_queue_state (queue, row_version);
