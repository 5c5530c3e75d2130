-- fq_drop_stage: drop a staging table that the caller made (see fq_make_stage). False: it is gone already.
-- Guarantees: drops nothing but a stage, and no stage of another role.
-- Locks: access exclusive on the table; waits for tasks that copy to it, as long as the caller's lock_timeout allows.
-- Index: none. Errors: 42501 it is the stage of another role.
create function fairqueue.fq_drop_stage(p_stage text)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('drop table %s', fairqueue.fq_find_stage(p_stage));
  return true;
exception
  when undefined_table then
    return false;
end
$$;
