-- fq_lock_turns: lock the messages that channels give to a batch. By channel, in ready order: its id, how many messages
-- it may give, its head. p_sized: whether the sizes of the messages are asked for.
-- Returns by message: its row, the how many-th channel it is of, the how many-th of that, its size; by channel: how
-- many it gives and, where whole, its next head. Not whole: somebody else has a message locked, which is passed by, and
-- the turn goes on behind it.
-- Guarantees: the first messages of each channel that are due, by (dequeue_at, id).
-- Locks: the messages for no key update, skip locked. Index: fq_message_ready_ix; rows by ctid. Errors: none.
create function fairqueue.fq_lock_turns(
  p_channels bigint[],
  p_quotas integer[],
  p_heads_at bigint[],
  p_head_ids bigint[],
  p_now bigint,
  p_sized boolean,
  out rows tid[],
  out ords bigint[],
  out ranks integer[],
  out sizes integer[],
  out gots integer[],
  out next_heads_at bigint[],
  out next_head_ids bigint[],
  out whole boolean
)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_ids bigint[];
  v_locked tid[];
begin
  -- The snapshot of this statement is younger than the locks of the channels: a message whose signal was heard before
  -- is seen. One scan finds what each channel may give and, one further, its new head; the last row of its turn tells
  -- how many and which.
  select
    array_agg(w.row) filter (where w.taken), array_agg(w.id) filter (where w.taken),
    array_agg(w.ord) filter (where w.taken), array_agg(w.rank) filter (where w.taken),
    array_agg(w.size) filter (where w.taken),
    array_agg(case when w.taken then w.rank else 0 end) filter (where w.last),
    array_agg(case when w.taken then w.next_at else w.dequeue_at end) filter (where w.last),
    array_agg(case when w.taken then w.next_id else w.id end) filter (where w.last)
  into rows, v_ids, ords, ranks, sizes, gots, next_heads_at, next_head_ids
  from (
    select t.*,
      t.rank <= t.quota and t.dequeue_at <= p_now as taken,
      case
        when t.rank > t.quota then t.quota = 0
        when t.dequeue_at <= p_now then t.rank = t.quota or t.next_at is null or t.next_at > p_now
        else t.rank = 1
      end as last
    from (
      select f.row, f.id, f.dequeue_at, f.size, u.ord, u.quota,
        (row_number() over turn)::integer as rank,
        lead(f.dequeue_at) over turn as next_at,
        lead(f.id) over turn as next_id
      from unnest(p_channels, p_quotas, p_heads_at, p_head_ids)
        with ordinality u(channel_id, quota, head_at, head_id, ord)
      left join lateral (
        select x.ctid as row, x.dequeue_at, x.id,
          case when p_sized then fairqueue.fq_message_size(x.content::bytea, x.headers::jsonb) end as size
        from fairqueue.fq_message x
        where x.channel_id = u.channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) >= (u.head_at, u.head_id)
        order by x.channel_id, x.dequeue_at, x.id
        limit u.quota + 1
      ) f on true
      window turn as (partition by u.ord order by f.dequeue_at, f.id)
    ) t
  ) w;
  select array_agg(l.row)
  into v_locked
  from (
    select x.ctid as row
    from unnest(rows, v_ids) u(row, id)
    join fairqueue.fq_message x
      on x.ctid = u.row
      and x.id is not distinct from u.id
      and num_nulls(x.lease_id) = 1
    for no key update of x skip locked
  ) l;
  whole := cardinality(v_locked) is not distinct from cardinality(rows);
  if whole then
    return;
  end if;

  select array_agg(f.row), array_agg(u.ord), array_agg(f.size)
  into rows, ords, sizes
  from unnest(p_channels, p_quotas, p_heads_at, p_head_ids)
    with ordinality u(channel_id, quota, head_at, head_id, ord)
  cross join lateral (
    select x.ctid as row,
      case when p_sized then fairqueue.fq_message_size(x.content::bytea, x.headers::jsonb) end as size
    from fairqueue.fq_message x
    where x.channel_id = u.channel_id
      and x.lease_id is null
      and (x.dequeue_at, x.id) >= (u.head_at, u.head_id)
      and x.dequeue_at <= p_now
    order by x.channel_id, x.dequeue_at, x.id
    limit u.quota
    for no key update skip locked
  ) f;
  gots := array_fill(0, array[cardinality(p_channels)]);
  ranks := array_fill(0, array[coalesce(cardinality(rows), 0)]);
  for i in 1..coalesce(cardinality(rows), 0) loop
    gots[ords[i]] := gots[ords[i]] + 1;
    ranks[i] := gots[ords[i]];
  end loop;
end
$$;
