-- fq_enqueue_members: enqueue messages as fq_enqueue does, and count the members of groups that this transaction has
-- made, as fq_join_group does. A caller that sends this call together with COMMIT does not see what was created, so it
-- cannot call fq_join_group afterwards.
-- Guarantees: as fq_enqueue; one note a group.
-- Locks: as fq_enqueue. Index: as fq_enqueue, fq_group_pkey, fq_group_note_pkey.
-- Errors: as fq_enqueue; QF001 a group is another queue's, or was made by another transaction.
create function fairqueue.fq_enqueue_members(
  p_queue text,
  p_channels text[],
  p_kinds text[],
  p_contents bytea[],
  p_headers jsonb[],
  p_delays bigint[],
  p_ats bigint[],
  p_priorities integer[],
  p_keys text[],
  p_max_attempts integer[],
  p_policy jsonb,
  p_on_duplicates text[],
  p_notify boolean,
  p_hold bigint[],
  p_costs integer[],
  p_groups uuid[]
)
returns table (ordinal integer, message_id bigint, created boolean, outcome text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
begin
  if exists (
    select
    from (
      select distinct g as group_id
      from unnest(p_groups) g
      where g is not null
    ) u
    where not exists (
      select
      from fairqueue.fq_group k
      where k.group_id = u.group_id
        and k.queue = p_queue
        and k.created_xid = pg_current_xact_id()
    )
  ) then
    raise exception 'fq_enqueue_members adds to a group that its transaction has not made for queue %',
      quote_nullable(left(p_queue, 80))
      using errcode = 'QF001', hint = 'make it in this transaction by fq_make_group, or count members by fq_join_group';
  end if;
  return query
  with added as materialized (
    select e.ordinal, e.message_id, e.created, e.outcome
    from fairqueue.fq_enqueue(
      p_queue::text, p_channels::text[], p_kinds::text[], p_contents::bytea[], p_headers::jsonb[],
      p_delays::bigint[], p_ats::bigint[], p_priorities::integer[], p_keys::text[], p_max_attempts::integer[],
      p_policy::jsonb, p_on_duplicates::text[], p_notify::boolean, p_hold::bigint[], p_costs::integer[],
      p_groups::uuid[]
    ) e
  ),
  joined as (
    -- one group for all
    select g.group_id, (select count(*) from added a where a.created) as members
    from unnest(p_groups) g(group_id)
    where cardinality(p_groups) = 1
    union all
    select g.group_id, count(*) filter (where g.created)
    from unnest(p_groups, (select array_agg(a.created order by a.ordinal) from added a)) g(group_id, created)
    where cardinality(p_groups) > 1
    group by g.group_id
  ),
  noted as (
    insert into fairqueue.fq_group_note as n (id, group_id, added)
    select 0, j.group_id, j.members
    from joined j
    where j.group_id is not null
    on conflict on constraint fq_group_note_pkey do update
    set added = n.added + excluded.added
  )
  select a.ordinal, a.message_id, a.created, a.outcome
  from added a;
end
$$;
