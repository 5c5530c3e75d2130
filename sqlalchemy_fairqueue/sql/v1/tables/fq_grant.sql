-- One row a role and kind of work that was granted to it, with the bounds of the grant: queues null: all of them;
-- channels null: all of those queues. The rights themselves are privileges on the functions; a row says why they are
-- there, so that a step between versions can renew them, and fq_check_grant reads the bounds.
-- Written by the grants and revokes of migrations alone. usage_given: whether the schema's usage came with the grants
-- of the role, to be taken back with the last of them.
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
