-- A leased task table: started_at is the lease. A task whose start is too long ago counts as stalled and is taken over; whoever needs
-- longer starts it again, which extends the lease. Urgent tasks first; a task has a name that stands once; at most so many run at a time.
-- Nothing tells a consumer that lost its task from the one that has it now: either may complete it. The limit is read, not held:
-- consumers that look at the same instant can pass it together.
create schema leased;
create table leased.task (
  id bigint generated always as identity primary key,
  name text unique,
  tenant text not null,
  priority integer not null default 0,
  content bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  started_at timestamptz
);
create index task_order_ix on leased.task (priority desc, created_at, id);
create index task_started_ix on leased.task (started_at) where started_at is not null;

create function leased.enqueue(p_tenants text[], p_contents bytea[], p_priority integer default 0, p_name text default null)
returns void language sql as $$
  insert into leased.task (name, tenant, priority, content)
  select p_name, u.tenant, p_priority, u.content
  from unnest(p_tenants, p_contents) with ordinality u(tenant, content, place)
  order by u.place
  on conflict (name) do nothing
$$;

create function leased.dequeue(p_limit integer, p_stalled interval default '5 minutes', p_most_running bigint default null)
returns table (id bigint, tenant text, content bytea) language plpgsql
set plan_cache_mode = force_generic_plan
set enable_sort = off as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  v_ids := array(
    with running as (
      select count(*) as tasks
      from leased.task t
      where t.started_at > now() - p_stalled
        and p_most_running is not null
    )
    select t.id
    from leased.task t
    where t.started_at is null
      or t.started_at <= now() - p_stalled
    order by t.priority desc, t.created_at, t.id
    limit (select least(p_limit, case when p_most_running < r.tasks then 0 else p_most_running - r.tasks end) from running r)
    for update skip locked
  );
  return query
  update leased.task t
  set started_at = clock_timestamp()
  where t.id = any (v_ids)
  returning t.id, t.tenant, t.content;
end
$$;

create function leased.extend(p_ids bigint[]) returns void language sql as $$
  update leased.task t
  set started_at = clock_timestamp()
  where t.id = any (p_ids)
    and t.started_at is not null
$$;

create function leased.complete(p_ids bigint[]) returns bigint language sql as $$
  with done as (
    delete from leased.task t
    where t.id = any (p_ids)
    returning 1
  )
  select count(*) from done
$$;
