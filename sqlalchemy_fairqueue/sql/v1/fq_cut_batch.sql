-- fq_cut_batch: choose the messages that locked channels give to a batch, in the order of start tags. By channel, in
-- ready order: id, head, the most that it may give (p_rooms), tag and rest, weight, p_estimates. p_by_cost: messages
-- are charged their cost, not 1; p_upto: no message starts beyond this tag; p_depth: messages of each channel to read;
-- p_limit, p_bytes: the most of the batch; p_first: one message goes whatever its size; p_skip: messages to pass over.
-- Returns by message its row, id, position of its channel, cost, size; by channel that gives messages or has none that
-- is due: givers, gots, charges, next_heads. is_cut: p_bytes had no room for the next message.
-- Guarantees: no message that these channels keep starts before the last one given, unless p_skip has it; so there may
-- be fewer than p_limit if a channel has more than p_depth. Locks: none. Index: fq_message_ready_ix. Errors: none.
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
  -- The snapshot of this statement is younger than the locks of the channels, so it has each message whose signal was
  -- heard. One message more is read of a channel than it may give: its new head.
  with read as materialized (
    select k.ord::integer as ord, k.room, f.row, f.id, f.dequeue_at, f.cost, f.size,
      row_number() over channel as rank,
      lead(f.dequeue_at) over channel as next_at,
      lead(f.id) over channel as next_id,
      fairqueue.fq_tag_after(
        k.tag::bigint, k.rest::bigint,
        (case when p_by_cost then sum(f.cost) over channel - f.cost else row_number() over channel - 1 end)::bigint,
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
    window channel as (partition by k.ord rows unbounded preceding)
  ),
  placed as materialized (
    select r.*, row_number() over in_batch as place, sum(r.size) over in_batch as bytes
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
    window in_batch as (order by r.start, r.rank, r.ord)
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
