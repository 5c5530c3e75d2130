-- One table of tasks in the schema "design", which stands for the name of the design that has it.
create schema design;
create table design.task (
  id bigint generated always as identity primary key,
  tenant text not null,
  content bytea not null,
  started_at timestamptz
);

create function design.enqueue(p_tenants text[], p_contents bytea[]) returns void language sql as $$
  insert into design.task (tenant, content)
  select u.tenant, u.content
  from unnest(p_tenants, p_contents) with ordinality u(tenant, content, place)
  order by u.place
$$;

create function design.complete(p_ids bigint[]) returns bigint language sql as $$
  with done as (
    delete from design.task t
    where t.id = any (p_ids)
    returning 1
  )
  select count(*) from done
$$;
