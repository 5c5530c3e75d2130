-- fq_limits: the shared limits, by name, with the queues that draw from each and what they have out. p_name: only this
-- one, null: all.
-- Guarantees: one snapshot of each limit. rate_interval 0: no rate. Locks: none. Index: fq_limit_pkey; those of
-- fq_limit_members. Errors: QF007: for monitors and operators of all queues.
create function fairqueue.fq_limits(p_name text)
returns table (
  name text,
  max_concurrency integer,
  rate_interval bigint,
  rate_burst integer,
  current_concurrency bigint,
  queues text[]
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], null::text, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  return query
  select f.name, f.max_concurrency, f.rate_interval, f.rate_burst, coalesce(m.messages_out, 0)::bigint,
    coalesce(m.queues, '{}')
  from fairqueue.fq_limit f
  cross join lateral (
    select sum(x.messages_out) as messages_out, array_agg(x.queue order by x.queue) as queues
    from fairqueue.fq_limit_members(f.name::text) x
  ) m
  where p_name is null
    or f.name = p_name
  order by f.name;
end
$$;
