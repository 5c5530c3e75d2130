-- fq_policy_fields: the fields of a channel's policy ('policy'), of the limits of a queue or a shared limit ('limit'),
-- or the settings of a queue that have bounds ('queue'), each a column of the table. initial: the value in a policy
-- without limits; a field whose initial value is null may be null. minimum, maximum: of numbers; words: the texts that
-- are allowed. Times are in microseconds.
-- Guarantees: the one list of fields in SQL. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_policy_fields(p_kind text)
returns table (name text, initial jsonb, minimum bigint, maximum bigint, words text[])
language sql
immutable
as $$
  select f.name, f.initial, f.minimum, f.maximum, f.words
  from (
    values ('{policy,limit}'::text[], 'max_concurrency', jsonb 'null', bigint '1', bigint '2147483647', null::text[]),
      ('{policy,limit}', 'rate_interval', '0', 0, 31536000000000, null),
      ('{policy,limit}', 'rate_burst', '1', 1, 1000000000, null),
      ('{policy,limit}', 'rate_of', '"messages"', null, null, '{messages,cost}'),
      ('{policy,limit}', 'max_cost_out', 'null', 1, 2147483647, null),
      ('{policy}', 'weight', '1', 1, 10000, null),
      ('{policy}', 'max_backlog', 'null', 1, 2147483647, null),
      ('{policy}', 'on_full', '"raise"', null, null, '{raise,drop}'),
      ('{policy}', 'priority_aging', 'null', 1, 31536000000000, null),
      ('{policy}', 'max_payload_bytes', 'null', 1, 268435456, null),
      ('{queue}', 'history', 'false', null, null, null),
      ('{queue}', 'history_retention', 'null', 1, 3153600000000000, null),
      ('{queue}', 'dead_letter_retention', 'null', 1, 3153600000000000, null),
      ('{queue}', 'result_retention', 'null', 1, 3153600000000000, null),
      ('{queue}', 'forget_channels_after', 'null', 1, 3153600000000000, null),
      ('{queue}', 'fair_by', '"messages"', null, null, '{messages,cost,seconds}'),
      ('{queue}', 'on_dead', '"continue"', null, null, '{continue,hold}')
  ) f(kinds, name, initial, minimum, maximum, words)
  where p_kind = any (f.kinds)
$$;
