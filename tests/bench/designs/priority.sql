-- A priority column: of the tasks that are due, the most urgent first (1 before 2), then by time. No index serves both the range of times
-- and the order: each of the three strategies, in files of their own, has a backlog in which one dequeue reads all of it.
create schema priority;
create table priority.task (
  id bigint generated always as identity primary key,
  tenant text not null,
  priority integer not null default 0,
  dequeue_at timestamptz not null default clock_timestamp(),
  content bytea not null,
  started_at timestamptz
);

create function priority.enqueue(p_tenants text[], p_contents bytea[]) returns void language sql as $$
  insert into priority.task (tenant, content)
  select u.tenant, u.content
  from unnest(p_tenants, p_contents) with ordinality u(tenant, content, place)
  order by u.place
$$;

create function priority.dequeue(p_limit integer) returns table (id bigint, tenant text, content bytea) language plpgsql
set plan_cache_mode = force_generic_plan
set enable_sort = off as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  v_ids := array(
    select t.id
    from priority.task t
    where t.started_at is null
      and t.dequeue_at <= now()
    order by t.priority, t.dequeue_at, t.id
    limit p_limit
    for update skip locked
  );
  return query
  update priority.task t
  set started_at = clock_timestamp()
  where t.id = any (v_ids)
  returning t.id, t.tenant, t.content;
end
$$;

create function priority.complete(p_ids bigint[]) returns bigint language sql as $$
  with done as (
    delete from priority.task t
    where t.id = any (p_ids)
    returning 1
  )
  select count(*) from done
$$;
