-- fq_job_stages: the names of the staging tables that runs of this job made and that are still there, oldest first.
-- Guarantees: only stages that the caller may drop; none for a job without a name. It does not tell whether the run
-- that made a stage is still alive. Once fq_merge has merged the job, or a micro-batch of it, a stage that was listed
-- before is useless: fq_merge answers its run that the job was merged.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_job_stages(p_queue text, p_job_id text)
returns setof text
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.relname::text
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = fairqueue.fq_stage_schema()
    and c.relkind = 'r'
    and c.relpersistence = 'u'
    and c.relname similar to 'fq\_stage\_[0-9]{1,18}\_[0-9a-f]{12}'
    and c.relowner = (select r.oid from pg_roles r where r.rolname = current_user)
    and has_table_privilege(fairqueue.fq_caller(), c.oid, 'insert')
    and num_nulls(p_queue, p_job_id) = 0
    and obj_description(c.oid, 'pg_class')
      = encode(sha256(convert_to(jsonb_build_array(p_queue, p_job_id)::text, 'UTF8')), 'hex')
  order by split_part(c.relname, '_', 3)::bigint, c.relname
$$;
