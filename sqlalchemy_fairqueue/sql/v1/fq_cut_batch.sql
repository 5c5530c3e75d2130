-- fq_cut_batch: the messages that channels give to a batch, in the order of start tags. By channel, in ready order: its
-- id, its head, the most that it may give, its tag and rest, its weight, what a message costs that names nothing.
-- p_by_cost: whether they are charged what they name, and not 1. p_upto: where none starts beyond (null: anywhere);
-- p_depth: messages of each channel to read; p_limit and p_bytes: the most that the batch may have (null: any bytes);
-- p_first: whether nothing was taken before, when one message passes whatever its size; p_skip: messages to pass over,
-- since somebody has them locked;
-- Returns by message: its row, its id, the position of its channel in p_channels, its cost, its size; by channel that
-- gives some, or has none that is due: its position, how many it gives, what they cost, and the first message read that
-- it keeps. is_cut: the next message would have been too many bytes.
-- Guarantees: no message that is left, of any of these channels, starts before the last one that is given, unless it is
-- skipped. They are p_limit together or, where a channel has more than p_depth, fewer.
-- Locks: none. Index: fq_message_ready_ix. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_cut_batch(
  p_channels bigint[], p_heads_at bigint[], p_head_ids bigint[], p_rooms integer[], p_tags bigint[], p_rests bigint[],
  p_weights integer[], p_estimates integer[], p_by_cost boolean, p_upto bigint, p_depth integer, p_limit integer,
  p_bytes bigint, p_first boolean, p_skip bigint[], p_now bigint,
  out rows tid[], out ids bigint[], out ords integer[], out costs bigint[], out sizes bigint[], out givers integer[],
  out gots integer[], out charges bigint[], out next_heads_at bigint[], out next_head_ids bigint[], out is_cut boolean
)
language plpgsql
as $$
begin
  -- The snapshot of this statement is younger than the locks of the channels: a message whose signal was heard before
  -- is seen. Of each channel one message more is read than it may give, its new head. The first window has the order in
  -- which they are read.
  with read as materialized (
    select k.ord::integer as ord, k.room, f.row, f.id, f.dequeue_at, f.cost, f.size,
      row_number() over turn as rank,
      lead(f.dequeue_at) over turn as next_at,
      lead(f.id) over turn as next_id,
      fairqueue.fq_tag_after(
        k.tag::bigint, k.rest::bigint,
        (case when p_by_cost then sum(f.cost) over turn - f.cost else row_number() over turn - 1 end)::bigint,
        k.weight::integer
      ) as start
    from unnest(p_channels, p_heads_at, p_head_ids, p_rooms, p_tags, p_rests, p_weights, p_estimates)
      with ordinality k(channel_id, head_at, head_id, room, tag, rest, weight, estimate, ord)
    left join lateral (
      select m.ctid as row, m.id, m.dequeue_at,
        greatest(0, coalesce(m.cost, k.estimate)) as cost,
        case when p_bytes is not null then fairqueue.fq_message_size(m.content::bytea, m.headers::jsonb) end as size
      from fairqueue.fq_message m
      where m.channel_id = k.channel_id
        and m.lease_id is null
        and (m.dequeue_at, m.id) >= (k.head_at, k.head_id)
        and m.id <> all (p_skip)
      order by m.channel_id, m.dequeue_at, m.id
      limit least(k.room, p_depth) + 1
    ) f on true
    window turn as (partition by k.ord rows unbounded preceding)
  ),
  placed as materialized (
    select r.*, row_number() over line as place, sum(r.size) over line as bytes
    from read r
    where r.rank <= least(r.room, p_depth)
      and r.dequeue_at <= p_now
      and (
        r.start <= (
          select least(
            p_upto, min(x.start) filter (where x.rank > p_depth and x.rank <= x.room and x.dequeue_at <= p_now)
          )
          from read x
        )
      ) is not false
    window line as (order by r.start, r.rank, r.ord)
  ),
  given as materialized (
    select p.*
    from placed p
    where p.place <= p_limit
      and (p.bytes <= p_bytes or p.place = 1 and p_first) is not false
  )
  select m.*, c.*
  into rows, ids, ords, costs, sizes, is_cut, givers, gots, charges, next_heads_at, next_head_ids
  from (
    select array_agg(g.row), array_agg(g.id), array_agg(g.ord), array_agg(g.cost::bigint), array_agg(g.size),
      p_bytes is not null and count(*) < (select count(*) from placed p where p.place <= p_limit)
    from given g
  ) m
  cross join (
    select array_agg(o.ord), array_agg(o.got), array_agg(o.charge), array_agg(o.last[2]), array_agg(o.last[3])
    from (
      select g.ord, count(*)::integer as got, sum(g.cost)::bigint as charge,
        max(array[g.rank, g.next_at, g.next_id]) as last
      from given g
      group by g.ord
      union all
      select r.ord, 0, 0, array[0, r.dequeue_at, r.id]
      from read r
      where r.rank = 1
        and r.room > 0
        and (r.dequeue_at <= p_now) is not true
    ) o
  ) c;
end
$$;
