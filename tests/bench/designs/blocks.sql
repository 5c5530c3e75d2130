-- Block-sequenced ids: ids are dealt in blocks of 1024 * 1024, a group (tenant) has one place in each block, and a task takes its group's
-- place in the next block that is neither used by the group nor behind what was popped last. A plain FIFO over such ids is fair.
-- An enqueue locks its group's row until its transaction ends: a group's producers stand in line, here in the order of the groups' names.
-- Differences from what was published: a group is numbered by a sequence that is asked once a group (max + 1 fails when two new groups
-- meet), and what was popped last is kept by the pop itself, since completed tasks are deleted here.
create schema blocks;
create table blocks.task_group (
  id bigint generated always as identity (minvalue 0 start 0 maxvalue 1048575) primary key,
  name text not null unique,
  block bigint not null
);
create table blocks.pointer (
  block bigint not null,
  single boolean primary key default true check (single)
);
insert into blocks.pointer (block) values (0);
create table blocks.task (
  id bigint primary key,
  tenant text not null,
  content bytea not null,
  started_at timestamptz
);
create index task_ready_ix on blocks.task (id) where started_at is null;

create function blocks.enqueue(p_tenants text[], p_contents bytea[]) returns void language plpgsql as $$
declare
  v_name text;
  v_contents bytea[];
  v_group blocks.task_group;
begin
  for v_name, v_contents in
    select u.tenant, array_agg(u.content order by u.place)
    from unnest(p_tenants, p_contents) with ordinality u(tenant, content, place)
    group by u.tenant
    order by u.tenant
  loop
    if not exists (select from blocks.task_group g where g.name = v_name) then
      insert into blocks.task_group (name, block) values (v_name, -1) on conflict (name) do nothing;
    end if;
    update blocks.task_group g
    set block = greatest(g.block + 1, (select p.block from blocks.pointer p)) + cardinality(v_contents) - 1
    where g.name = v_name
    returning g.* into v_group;
    insert into blocks.task (id, tenant, content)
    select (v_group.block - cardinality(v_contents) + u.place) * 1024 * 1024 + v_group.id, v_name, u.content
    from unnest(v_contents) with ordinality u(content, place);
  end loop;
end
$$;

create function blocks.dequeue(p_limit integer) returns table (id bigint, tenant text, content bytea) language plpgsql
set plan_cache_mode = force_generic_plan
set enable_sort = off as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  v_ids := array(
    select t.id
    from blocks.task t
    where t.started_at is null
    order by t.id
    limit p_limit
    for update skip locked
  );
  -- One row that every pop updates: pops stand in line here. It never goes back.
  update blocks.pointer p
  set block = greatest(p.block, v_ids[cardinality(v_ids)] / (1024 * 1024))
  where cardinality(v_ids) > 0
    and p.block < v_ids[cardinality(v_ids)] / (1024 * 1024);
  return query
  update blocks.task t
  set started_at = clock_timestamp()
  where t.id = any (v_ids)
  returning t.id, t.tenant, t.content;
end
$$;

create function blocks.complete(p_ids bigint[]) returns bigint language sql as $$
  with done as (
    delete from blocks.task t
    where t.id = any (p_ids)
    returning 1
  )
  select count(*) from done
$$;
