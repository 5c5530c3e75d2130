-- fq_cut_batch: the messages that channels give to a batch, in the order of start tags. By channel, in ready order: its
-- id, its head, the most that it may give, its tag and rest, its weight. p_by_cost: whether messages cost what they
-- name, and not 1. p_upto: where none starts beyond (null: anywhere); p_depth: messages of each channel to read; p_limit
-- and p_bytes: the most that the batch may have (null: any bytes); p_first: whether nothing was taken before, when one
-- message passes whatever its size; p_skip: messages to pass over, since somebody has them locked.
-- Returns by message: its row, its id, the how many-th channel it is of, its cost, its size; by channel: how many it
-- gives, what they cost, and the first message that it keeps, by what was read. A channel that has a message that is
-- due, and gives none, has null: it is left alone. is_cut: the next message would have been too many bytes.
-- Guarantees: no message that is left, of any of these channels, starts before the last one that is given, unless it is
-- skipped. They are p_limit together or, where a channel has more than p_depth, fewer.
-- Locks: none. Index: fq_message_ready_ix. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_cut_batch(
  p_channels bigint[],
  p_heads_at bigint[],
  p_head_ids bigint[],
  p_rooms integer[],
  p_tags bigint[],
  p_rests bigint[],
  p_weights integer[],
  p_by_cost boolean,
  p_upto bigint,
  p_depth integer,
  p_limit integer,
  p_bytes bigint,
  p_first boolean,
  p_skip bigint[],
  p_now bigint,
  out rows tid[],
  out ids bigint[],
  out ords integer[],
  out costs bigint[],
  out sizes bigint[],
  out gots integer[],
  out charges bigint[],
  out next_heads_at bigint[],
  out next_head_ids bigint[],
  out is_cut boolean
)
language plpgsql
volatile
as $$
begin
  -- The snapshot of this statement is younger than the locks of the channels: a message whose signal was heard before
  -- is seen. Of each channel one message more is read than it may give, its new head.
  with found as (
    select k.ord::integer as ord, k.room, k.tag, k.rest, k.weight, f.row, f.id, f.dequeue_at, f.cost, f.size,
      row_number() over turn as rank,
      sum(f.cost) over turn as upto
    from unnest(p_channels, p_heads_at, p_head_ids, p_rooms, p_tags, p_rests, p_weights)
      with ordinality k(channel_id, head_at, head_id, room, tag, rest, weight, ord)
    left join lateral (
      select m.ctid as row, m.id, m.dequeue_at,
        case when p_by_cost then greatest(0, coalesce(m.cost, 1)) else 1 end as cost,
        case when p_bytes is not null then fairqueue.fq_message_size(m.content::bytea, m.headers::jsonb) end as size
      from fairqueue.fq_message m
      where m.channel_id = k.channel_id
        and m.lease_id is null
        and (m.dequeue_at, m.id) >= (k.head_at, k.head_id)
        and m.id <> all (p_skip)
      order by m.channel_id, m.dequeue_at, m.id
      limit least(k.room, p_depth) + 1
    ) f on true
    window turn as (partition by k.ord order by f.dequeue_at, f.id)
  ),
  read as materialized (
    select r.ord, r.room, r.row, r.id, r.dequeue_at, r.cost, r.size, r.rank,
      fairqueue.fq_tag_after(r.tag::bigint, r.rest::bigint, (r.upto - r.cost)::bigint, r.weight::integer) as start
    from found r
  ),
  bound as materialized (
    select least(
      p_upto, min(r.start) filter (where r.rank > p_depth and r.rank <= r.room and r.dequeue_at <= p_now)
    ) as upto
    from read r
  ),
  placed as materialized (
    select p.*, row_number() over line as place, sum(p.size) over line as bytes
    from (
      select r.*,
        (
          r.rank <= least(r.room, p_depth)
          and r.dequeue_at <= p_now
          and (r.start <= b.upto) is not false
        ) is true as able
      from read r
      cross join bound b
    ) p
    window line as (order by p.able desc, p.start, p.rank, p.ord)
  ),
  too_much as materialized (
    select min(p.place) as place
    from placed p
    where p.able
      and p.place <= p_limit
      and p.bytes > p_bytes
      and (p.place > 1 or not p_first)
  ),
  given as materialized (
    select p.*, p.able and p.place <= p_limit and (p.place < t.place) is not false as taken
    from placed p
    cross join too_much t
  )
  select m.*, c.*, (select t.place from too_much t) is not null
  into rows, ids, ords, costs, sizes, gots, charges, next_heads_at, next_head_ids, is_cut
  from (
    select array_agg(g.row order by g.place), array_agg(g.id order by g.place), array_agg(g.ord order by g.place),
      array_agg(g.cost::bigint order by g.place), array_agg(g.size order by g.place)
    from given g
    where g.taken
  ) m
  cross join (
    select array_agg(o.got order by o.ord), array_agg(o.charge order by o.ord), array_agg(o.least[1] order by o.ord),
      array_agg(o.least[2] order by o.ord)
    from (
      select g.ord,
        case
          when bool_or(g.taken) then count(*) filter (where g.taken)
          when min(g.room) > 0 and bool_or(g.dequeue_at <= p_now) is not true then 0
        end::integer as got,
        coalesce(sum(g.cost) filter (where g.taken), 0)::bigint as charge,
        min(array[g.dequeue_at, g.id]) filter (where not g.taken and g.id is not null) as least
      from given g
      group by g.ord
    ) o
  ) c;
end
$$;
