-- fq_bad_argument: the name of the first argument of a message that is out of its bounds; null: none is.
-- Guarantees: one expression, which the planner inlines; nothing else knows the bounds. Its callers pin the
-- search_path.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_bad_argument(
  p_channel text, p_kind text, p_content bytea, p_headers jsonb, p_delay bigint, p_at bigint, p_priority integer,
  p_key text, p_max_attempts integer, p_on_duplicate text, p_cost integer, p_unique_for bigint,
  p_ordering_key text
)
returns text
language sql
stable parallel safe
as $$
  select case
    when (octet_length(p_channel) between 1 and 512) is not true then 'channel'
    when (octet_length(p_kind) between 1 and 512) is not true then 'kind'
    -- sent as text it is twice as long, and the server sends no more than a gigabyte: it could never be dequeued
    when (octet_length(p_content) <= 268435456) is not true then 'content'
    when not fairqueue.fq_headers_fit(p_headers) then 'headers'
    when p_delay not between 0 and 3153600000000000 or num_nonnulls(p_delay, p_at) > 1 then 'delay'
    when p_at > 253402300799999999 then 'at'
    when p_priority < 1 then 'priority'
    when octet_length(p_key) not between 1 and 512 then 'key'
    when p_max_attempts < 1 then 'max_attempts'
    when p_on_duplicate not in ('skip', 'raise', 'replace', 'coalesce') then 'on_duplicate'
    when p_on_duplicate = 'coalesce' and (p_ordering_key is null or p_key is not null) then 'on_duplicate'
    when p_cost not between 1 and 1000000000 then 'cost'
    when p_unique_for not between 1 and 3153600000000000 then 'unique_for'
    when p_unique_for is not null and p_key is null then 'key'
    when octet_length(p_ordering_key) not between 1 and 512 then 'ordering_key'
  end
$$;
