-- fq_queue_settings: the settings of the configured queues, by column, in the order of the names; p_queue: only of this
-- one (null: of all).
-- Guarantees: one snapshot; a queue that was never configured has no row. Retentions in microseconds.
-- Locks: none. Index: fq_queue_pkey. Errors: QF007.
create function fairqueue.fq_queue_settings(p_queue text)
returns table (queue text, settings jsonb)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[])
  where p_queue is not null;
  return query
  select q.name, to_jsonb(q)
  from fairqueue.fq_queue q
  where p_queue is null
    or q.name = p_queue
  order by q.name;
end
$$;
