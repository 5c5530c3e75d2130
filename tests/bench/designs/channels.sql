-- The channel design with the head pointer updated at enqueue (head_pointer.sql, installed before) under the names that all designs have.
create schema channels;

-- In the order of the channels' names: each enqueue locks its channel's row until its transaction ends.
create function channels.enqueue(p_tenants text[], p_contents bytea[]) returns void language sql as $$
  select head.enqueue('bench', o.tenant, o.content)
  from (
    select u.*
    from unnest(p_tenants, p_contents) with ordinality u(tenant, content, place)
    order by u.tenant collate "C", u.place
  ) o
$$;

create function channels.dequeue(p_limit integer) returns table (id bigint, tenant text, content bytea) language plpgsql as $$
declare
  v_lease_id bigint := (random() * 9e18)::bigint;
begin
  for i in 1 .. p_limit loop
    return query select d.message_id, d.channel, d.content from head.dequeue('bench', v_lease_id) d;
    exit when not found;
  end loop;
end
$$;

create function channels.complete(p_ids bigint[]) returns bigint language sql as $$
  select sum(head.complete(m.id, m.lease_id))::bigint
  from (
    select m.id, m.lease_id
    from head.message m
    where m.id = any (p_ids)
    order by m.channel_id, m.id
  ) m
$$;
