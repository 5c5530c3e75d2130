-- fq_message_size: what a message counts against the bytes of a batch: its content, and its headers as text.
-- Guarantees: one expression, which the planner inlines. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_message_size(p_content bytea, p_headers jsonb)
returns bigint
language sql
immutable
as $$
  select pg_catalog.octet_length(p_content)::pg_catalog.int8
    operator(pg_catalog.+) coalesce(pg_catalog.octet_length(p_headers::pg_catalog.text), 0)
$$;
