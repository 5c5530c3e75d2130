-- One row for each shared limit: how many messages of several queues together may be out (max_concurrency), what they
-- may cost (max_cost_out), and at which rate they may go, in messages or in cost.
-- Written by fq_configure_limit.
create table fairqueue.fq_limit (
  name text collate "C" not null,
  max_concurrency integer,
  max_cost_out integer,
  rate_interval bigint not null default 0,
  rate_burst integer not null default 1,
  rate_of text collate "C" not null default 'messages',
  constraint fq_limit_pkey primary key (name),
  constraint fq_limit_name_check check (octet_length(name) between 1 and 512),
  constraint fq_limit_values_check check (
    max_concurrency >= 1 and rate_interval between 0 and 31536000000000 and rate_burst between 1 and 1000000000
    and max_cost_out >= 1 and rate_of in ('messages', 'cost')
  )
);
