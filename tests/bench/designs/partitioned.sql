-- The window function: each tenant's waiting tasks are numbered, and the lowest numbers of all tenants are taken: a fair order, computed anew by every dequeue.
-- FOR UPDATE is not allowed beside a window function, so that rows are chosen first and locked afterwards: rivals choose the same ones,
-- find them locked and get nothing, however much is waiting. And every dequeue reads the whole backlog.
create index task_ready_ix on partitioned.task (tenant, id) where started_at is null;

create function partitioned.dequeue(p_limit integer) returns table (id bigint, tenant text, content bytea) language sql as $$
  with numbered as (
    select t.id,
      row_number() over (partition by t.tenant order by t.id) as number
    from partitioned.task t
    where t.started_at is null
  ),
  chosen as (
    select n.id
    from numbered n
    order by n.number, n.id
    limit p_limit
  ),
  locked as (
    select t.id
    from partitioned.task t
    where t.id in (select c.id from chosen c)
      and t.started_at is null
    for update skip locked
  )
  update partitioned.task t
  set started_at = clock_timestamp()
  from locked l
  where t.id = l.id
  returning t.id, t.tenant, t.content
$$;
