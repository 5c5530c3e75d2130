-- fq_complete_many: do what fq_complete does for several messages, for those whose result is kept, and for one that is
-- not where its delivery found it. Returns the ids of the completed ones.
-- Guarantees: as fq_complete. Messages that hold a slot of the queue, but none of their channel, leave one signal
-- together in the name of one of their channels: with a signal for each, the dispatcher would write all these states
-- for nothing.
-- Locks, index, errors: as fq_complete.
create function fairqueue.fq_complete_many(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_kept boolean[],
  p_results bytea[], p_problems text[]
)
returns bigint[]
language plpgsql
as $$
declare
  v_rows tid[] := p_rows;
  v_done bigint[];
  v_members bigint[];
  v_groups uuid[];
  v_channel_ids bigint[];
  v_ordered bigint[];
  v_ordering_keys text[];
  v_all_kinds text[];
  v_attempts bigint[];
  v_kinds text[];
begin
  if p_kept is not null then
    select array_agg(m.channel_id order by u.ord), array_agg(m.kind order by u.ord) into v_channel_ids, v_all_kinds
    from unnest(p_ids) with ordinality u(id, ord)
    left join lateral (
      select x.channel_id, x.kind
      from fairqueue.fq_message x
      where x.id = u.id
      limit 1
    ) m on true;
  end if;
  for v_pass in 1..5 loop
    with done as (
      delete from fairqueue.fq_message m
      using (
        select u.*
        from unnest(p_ids, v_rows, p_lease_ids, p_deliveries) u(id, row, lease_id, deliveries)
        where u.row is not null
          and u.lease_id is not null
        order by u.id
      ) u
      where m.ctid = u.row
        and m.id is not distinct from u.id
        and m.lease_id is not distinct from u.lease_id
        and m.deliveries = u.deliveries
        and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
      returning m.id, m.channel_id, m.slots, fairqueue.fq_charged(m.charged, m.cost::integer) as cost, m.kind,
        m.ordering_key,
        case when not m.cancelled then m.group_id end as group_id,
        fairqueue.fq_attempt(m.*) as attempt
    ),
    signalled as (
      insert into fairqueue.fq_signal (queue, channel_id, freed, queue_freed, freed_cost, queue_freed_cost)
      select p_queue, min(d.channel_id), sum(d.slots & 1), sum(d.slots >> 1), sum((d.slots & 1) * d.cost),
        sum((d.slots >> 1) * d.cost)
      from done d
      where d.slots > 0
      group by case when d.slots & 1 > 0 then d.channel_id end
    )
    select v_done || array_agg(d.id),
      array_agg(d.attempt) filter (where d.attempt is not null),
      array_agg(d.kind) filter (where d.attempt is not null),
      array_agg(d.id) filter (where d.group_id is not null),
      array_agg(d.group_id) filter (where d.group_id is not null),
      array_agg(d.channel_id) filter (where d.ordering_key is not null),
      array_agg(d.ordering_key) filter (where d.ordering_key is not null)
    into v_done, v_attempts, v_kinds, v_members, v_groups, v_ordered, v_ordering_keys
    from done d;
    if v_members is not null then
      perform fairqueue.fq_end_members(v_members::bigint[], v_groups::uuid[], false::boolean);
    end if;
    if v_ordered is not null then
      perform fairqueue.fq_tell_ordering(p_queue, v_ordered, v_ordering_keys);
    end if;
    if v_attempts is not null then
      perform fairqueue.fq_record_attempts(
        p_queue, v_attempts, v_kinds, null::text[], 'completed'::text, null::boolean[], null::bigint
      );
    end if;
    exit when cardinality(v_done) = cardinality(p_ids);

    -- A row is not where the delivery found it (the table was rewritten, or someone updated it): find it by id.
    select array_agg(m.ctid order by u.ord) into v_rows
    from unnest(p_ids, p_lease_ids, p_deliveries) with ordinality u(id, lease_id, deliveries, ord)
    left join lateral (
      select x.ctid
      from fairqueue.fq_message x
      where x.id = u.id
        and x.lease_id is not distinct from u.lease_id
        and u.lease_id is not null
        and x.deliveries = u.deliveries
      limit 1
    ) m on true;
    exit when num_nonnulls(variadic v_rows) = 0;
  end loop;

  if p_kept is not null then
    insert into fairqueue.fq_result (
      message_id, queue, channel, kind, outcome, content, problem, finished_at, expires_at
    )
    select u.id, p_queue, (select c.name from fairqueue.fq_channel c where c.id = u.channel_id), u.kind,
      case when u.problem is null then 'completed' else 'unkept' end,
      u.content, u.problem, n.at, n.at + q.result_retention
    from unnest(p_ids, p_kept, p_results, p_problems, v_channel_ids, v_all_kinds)
      u(id, kept, content, problem, channel_id, kind)
    join fairqueue.fq_queue q on q.name = p_queue
    cross join fairqueue.fq_now() n(at)
    where u.kept
      and u.id = any (v_done)
      and q.result_retention is not null
    on conflict on constraint fq_result_pkey do nothing;
  end if;
  return v_done;
end
$$;
