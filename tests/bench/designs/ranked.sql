-- The rank of the oldest tasks of each tenant, without any state: a loose index scan steps from tenant to tenant, reads the first tasks of
-- each, and the lowest ranks, divided by the weight of the tenant, are taken. It is fair within a batch, and begins anew with each one: who
-- takes a task at a time takes the oldest, as first come, first served. All tenants are stepped through at each dequeue.
create table ranked.tenant_weight (
  tenant text primary key,
  weight numeric not null
);
create index task_ready_ix on ranked.task (tenant, id) where started_at is null;

create function ranked.dequeue(p_limit integer) returns table (id bigint, tenant text, content bytea) language sql
set enable_seqscan = off as $$
  with recursive tenants as (
    (
      select t.tenant
      from ranked.task t
      where t.started_at is null
      order by t.tenant
      limit 1
    )
    union all
    select n.tenant
    from tenants s
    cross join lateral (
      select t.tenant
      from ranked.task t
      where t.started_at is null
        and t.tenant > s.tenant
      order by t.tenant
      limit 1
    ) n
  ),
  chosen as (
    select f.id
    from tenants s
    left join ranked.tenant_weight w on w.tenant = s.tenant
    cross join lateral (
      select o.id, row_number() over (order by o.id) as number
      from (
        select t.id
        from ranked.task t
        where t.started_at is null
          and t.tenant = s.tenant
        order by t.id
        limit p_limit
        for update skip locked
      ) o
    ) f
    order by f.number / coalesce(w.weight, 1), f.id
    limit p_limit
  )
  update ranked.task t
  set started_at = clock_timestamp()
  where t.id in (select c.id from chosen c)
  returning t.id, t.tenant, t.content
$$;
