-- Plain FIFO: one table, the oldest rows first, rivals pass by what is locked. Nobody gets a turn: who comes first with much is served first.
-- How many a dequeue wants is unknown to its plan: sorting is off so that no backlog seems short enough to be read and sorted.
create index task_ready_ix on fifo.task (id) where started_at is null;

create function fifo.dequeue(p_limit integer) returns table (id bigint, tenant text, content bytea) language plpgsql
set plan_cache_mode = force_generic_plan
set enable_sort = off as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  v_ids := array(
    select t.id
    from fifo.task t
    where t.started_at is null
    order by t.id
    limit p_limit
    for update skip locked
  );
  return query
  update fifo.task t
  set started_at = clock_timestamp()
  where t.id = any (v_ids)
  returning t.id, t.tenant, t.content;
end
$$;
