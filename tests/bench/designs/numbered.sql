-- A number that is computed at the insert: each tenant counts its tasks, and the lowest numbers of all tenants are taken, so a dequeue is
-- that of one sorted table. An enqueue locks the counter of its tenant until its transaction ends. A counter never looks at the others: a
-- tenant that comes back, or comes late, has lower numbers than all others, and is served alone until it has caught up.
create table numbered.counter (
  tenant text primary key,
  number bigint not null
);
alter table numbered.task add column number bigint not null;
create index task_ready_ix on numbered.task (number, id) where started_at is null;

create or replace function numbered.enqueue(p_tenants text[], p_contents bytea[]) returns void language sql as $$
  with counted as (
    insert into numbered.counter as c (tenant, number)
    select u.tenant, count(*)
    from unnest(p_tenants) u(tenant)
    group by u.tenant
    order by u.tenant
    on conflict (tenant) do update set number = c.number + excluded.number
    returning c.tenant, c.number
  )
  insert into numbered.task (tenant, number, content)
  select u.tenant, c.number - count(*) over (partition by u.tenant) + row_number() over (partition by u.tenant order by u.place), u.content
  from unnest(p_tenants, p_contents) with ordinality u(tenant, content, place)
  join counted c on c.tenant = u.tenant
$$;

create function numbered.dequeue(p_limit integer) returns table (id bigint, tenant text, content bytea) language plpgsql
set plan_cache_mode = force_generic_plan
set enable_sort = off as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  v_ids := array(
    select t.id
    from numbered.task t
    where t.started_at is null
    order by t.number, t.id
    limit p_limit
    for update skip locked
  );
  return query
  update numbered.task t
  set started_at = clock_timestamp()
  where t.id = any (v_ids)
  returning t.id, t.tenant, t.content;
end
$$;
