-- fq_gate_key: the advisory lock that a dequeue of a queue holds shared, and a change of the queue's limit holds alone.
-- Guarantees: one key a queue and installation, among 2^64. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_gate_key(p_queue text)
returns bigint
language sql
stable parallel safe
as $$
  select pg_catalog.hashtextextended(p_queue, pg_catalog.pg_typeof(null::fairqueue.fq_queue)::pg_catalog.oid::bigint)
$$;
