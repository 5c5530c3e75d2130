-- fq_stop_requests: the requests to stop a consumer of some queues, with who asked. A worker calls it before it starts,
-- and at polls: a request that is new then, or has another requested_at than at its start, is for it.
-- Guarantees: one snapshot; nothing is claimed, so that each process of the same name finds the request.
-- Locks: none. Index: fq_stop_request_pkey. Errors: QF007.
create function fairqueue.fq_stop_requests(p_queues text[], p_consumer text)
returns table (queue text, requested_by text, requested_at bigint)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], q.name, null::text[])
  from unnest(p_queues) q(name);
  return query
  select r.queue || '', r.requested_by, r.requested_at
  from unnest(p_queues) q(name)
  join fairqueue.fq_stop_request r on r.queue = q.name
    and r.consumer = p_consumer;
end
$$;
