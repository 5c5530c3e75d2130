-- fq_policy_fields: the fields of a channel's policy, each a column of fq_channel_state. initial: the value in a policy
-- without limits; a field whose initial value is null may be null. minimum, maximum: of numbers; words: the texts that
-- are allowed. rate_interval and priority_aging are in microseconds.
-- Guarantees: the one list of fields in SQL. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_policy_fields()
returns table (name text, initial jsonb, minimum bigint, maximum bigint, words text[])
language sql
immutable
as $$
  values ('max_concurrency', jsonb 'null', bigint '1', bigint '2147483647', null::text[]),
    ('rate_interval', '0', 0, 31536000000000, null),
    ('rate_burst', '1', 1, 1000000000, null),
    ('rate_of', '"messages"', null, null, '{messages,cost}'),
    ('max_cost_out', 'null', 1, 2147483647, null),
    ('weight', '1', 1, 10000, null),
    ('max_backlog', 'null', 1, 2147483647, null),
    ('on_full', '"raise"', null, null, '{raise,drop}'),
    ('priority_aging', 'null', 1, 31536000000000, null),
    ('max_payload_bytes', 'null', 1, 268435456, null)
$$;
