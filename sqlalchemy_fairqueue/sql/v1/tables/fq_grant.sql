-- One row for each role and kind of work that was granted to it. queues, channels: the bounds of the grant; null: all
-- of them. The rights themselves are privileges on the functions. A row says why they are there, so that a step between
-- versions can renew them, and fq_check_grant reads the bounds. Only grants and revokes of migrations write it.
-- usage_given: the usage of the schema came with the role's grants, and is taken back with the last of them.
create table fairqueue.fq_grant (
  role regrole not null,
  kind text collate "C" not null,
  queues text[] collate "C",
  channels text[] collate "C",
  usage_given boolean not null default false,
  constraint fq_grant_pkey primary key (role, kind),
  constraint fq_grant_kind_check check (kind in ('producer', 'consumer', 'monitor', 'operator', 'loader')),
  constraint fq_grant_bounds_check check (cardinality(queues) >= 1 and cardinality(channels) >= 1)
);
