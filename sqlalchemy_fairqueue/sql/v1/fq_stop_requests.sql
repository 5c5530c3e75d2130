-- fq_stop_requests: the requests to stop a consumer of some queues, with who asked. A worker calls it before it starts,
-- and at polls: a request that is new then, or has another requested_at than at its start, is for it. Each call also
-- writes p_version and p_concurrency to those of its leases p_lease_ids that do not have them yet, unless the server
-- takes no writes.
-- Guarantees: one snapshot; nothing is claimed, so that each process of the same name finds the request.
-- Locks: these leases for no key update, skip locked: it waits for none. Index: fq_stop_request_pkey, fq_lease_pkey.
-- Errors: QF007.
create function fairqueue.fq_stop_requests(
  p_queues text[], p_consumer text, p_lease_ids bigint[], p_version text, p_concurrency integer
)
returns table (queue text, requested_by text, requested_at bigint)
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], q.name, null::text[])
  from unnest(p_queues) q(name);
  if p_concurrency is not null and current_setting('transaction_read_only') = 'off' then
    update fairqueue.fq_lease e
    set version = left(p_version, 100),
      concurrency = p_concurrency
    where e.id = any (array(
        select x.id
        from fairqueue.fq_lease x
        where x.id = any (p_lease_ids)
          and x.queue = any (p_queues)
          and x.consumer = p_consumer
          and x.concurrency is null
        for no key update skip locked
      ));
  end if;
  return query
  select r.queue || '', r.requested_by, r.requested_at
  from unnest(p_queues) q(name)
  join fairqueue.fq_stop_request r on r.queue = q.name
    and r.consumer = p_consumer;
end
$$;
