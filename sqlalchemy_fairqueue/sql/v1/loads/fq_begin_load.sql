-- fq_begin_load: begin a bulk load of fq_merge, in the caller's transaction. Returns no row, or, if the job has been
-- merged before with this batch or a later one, the counts of that merge.
-- Locks: the job's row until the commit, which only the same job waits for. Index: fq_load_pkey.
-- Errors: QF001 a job that was another load; QF003 not READ COMMITTED.
create function fairqueue.fq_begin_load(p_queue text, p_job_id text, p_batch_id bigint, p_source text, p_now bigint)
returns table (
  messages bigint, created bigint, replaced bigint, duplicates bigint, dropped bigint, rejected bigint
)
language plpgsql
as $$
declare
  v_load fairqueue.fq_load;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_merge runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction of its own';
  end if;
  insert into fairqueue.fq_load as l (
    queue, job_id, batch_id, source, messages, created, replaced, duplicates, dropped, rejected, committed_at
  )
  values (p_queue, p_job_id, null, p_source, 0, 0, 0, 0, 0, 0, p_now)
  on conflict (queue, job_id) do nothing;
  if found then
    return;
  end if;
  select * into v_load
  from fairqueue.fq_load l
  where l.queue = p_queue
    and l.job_id = p_job_id
  for update;
  if (v_load.batch_id is null) <> (p_batch_id is null)
    or (p_batch_id is not null and v_load.source is distinct from p_source)
  then
    raise exception 'job % of queue % was another load', left(p_job_id, 80), p_queue
      using errcode = 'QF001',
        detail = format(
          'then: batch %s of source %L; now: batch %s of source %L',
          coalesce(v_load.batch_id::text, 'none'), v_load.source, coalesce(p_batch_id::text, 'none'), p_source
        ),
        hint = 'give this one a job id of its own; a stream goes on with its checkpoint, and one that starts anew '
          'needs a new job id';
  end if;
  if v_load.batch_id < p_batch_id then
    return;
  end if;
  return query
  select v_load.messages, v_load.created, v_load.replaced, v_load.duplicates, v_load.dropped, v_load.rejected;
end
$$;
