-- fq_find_load: the committed load of a job, or no row.
-- Guarantees: as the statement that calls it sees it. Locks: none. Index: fq_load_pkey. Errors: QF007.
create function fairqueue.fq_find_load(p_queue text, p_job_id text)
returns table (
  batch_id bigint, messages bigint, created bigint, replaced bigint, duplicates bigint, dropped bigint, rejected bigint
)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['loader']::text[], p_queue, null::text[]);
  return query
  select l.batch_id, l.messages, l.created, l.replaced, l.duplicates, l.dropped, l.rejected
  from fairqueue.fq_load l
  where l.queue = p_queue
    and l.job_id = p_job_id;
end
$$;
