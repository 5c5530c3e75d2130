-- fq_asked_to_stop: the consumers of a queue that were asked to stop within the last hour, who asked last and when.
-- Guarantees: one snapshot. A name stays here also when its worker has stopped, or another one has started under it.
-- Cost: the requests of the queue that stand. Locks: none. Index: fq_stop_request_pkey. Errors: QF007.
create function fairqueue.fq_asked_to_stop(p_queue text)
returns table (consumer text, requested_by text, requested_at bigint)
language plpgsql
stable
security definer
as $$
#variable_conflict use_column
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  return query
  select r.consumer || '', r.requested_by, r.requested_at
  from fairqueue.fq_stop_request r
  where r.queue = p_queue
    and r.requested_at > fairqueue.fq_now() - 3600000000;
end
$$;
