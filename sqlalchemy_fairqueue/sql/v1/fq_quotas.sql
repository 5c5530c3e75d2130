-- fq_quotas: how many messages each channel gives to a batch of p_limit that is filled in the order of start tags. By
-- channel, in ready order: its state row, its id, its head, the most that it may give. p_depth: messages of each
-- channel to read; p_all: whether these are all ready channels, and not only the first ones.
-- Guarantees: tags and rests as the state rows have them, which the caller has locked. What the quotas name is the
-- beginning of the order of start tags: no message that is left, of any channel, starts before the last one named. They
-- are p_limit together or, where a channel has more than p_depth, fewer. A channel without a message that is due gets
-- 1, so that its head is found anew.
-- Locks: none. Index: fq_message_ready_ix; state rows by ctid. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_quotas(
  p_states tid[],
  p_channels bigint[],
  p_heads_at bigint[],
  p_head_ids bigint[],
  p_most integer[],
  p_now bigint,
  p_limit integer,
  p_depth integer,
  p_all boolean,
  out tags bigint[],
  out rests bigint[],
  out quotas integer[]
)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
begin
  with known as materialized (
    select u.ord, u.channel_id, u.head_at, u.head_id, u.most, s.next_dequeue_at as tag, coalesce(s.tag_rest, 0) as rest,
      s.weight
    from unnest(p_states, p_channels, p_heads_at, p_head_ids, p_most)
      with ordinality u(row, channel_id, head_at, head_id, most, ord)
    join fairqueue.fq_channel_state s on s.ctid = u.row
  ),
  started as materialized (
    select k.ord, f.rank,
      f.rank <= least(k.most, p_depth) as may_be_taken,
      f.rank > p_depth and f.rank <= k.most as goes_on,
      fairqueue.fq_tag_after(k.tag::bigint, k.rest::bigint, f.cost_before::bigint, k.weight) as start
    from known k
    cross join lateral (
      select (row_number() over (order by x.dequeue_at, x.id))::integer as rank,
        coalesce(
          sum(greatest(0, coalesce(x.cost, 1)))
            over (order by x.dequeue_at, x.id rows between unbounded preceding and 1 preceding),
          0
        )::bigint as cost_before
      from (
        select m.dequeue_at, m.id, m.cost
        from fairqueue.fq_message m
        where m.channel_id = k.channel_id
          and m.lease_id is null
          and (m.dequeue_at, m.id) >= (k.head_at, k.head_id)
          and m.dequeue_at <= p_now
        order by m.channel_id, m.dequeue_at, m.id
        limit least(k.most, p_depth) + 1
      ) x
    ) f
  ),
  named as (
    select t.ord
    from started t
    where t.may_be_taken
      and (
        t.start <= least(
          (
            select max(k.tag)
            from known k
            where not p_all
          ),
          (
            select min(g.start)
            from started g
            where g.goes_on
          )
        )
      ) is not false
    order by t.start, t.rank, t.ord
    limit p_limit
  )
  select array_agg(k.tag order by k.ord), array_agg(k.rest order by k.ord),
    array_agg(
      case
        when k.most < 1 then 0
        when exists (select from started t where t.ord = k.ord) then (select count(*) from named n where n.ord = k.ord)
        else 1
      end
      order by k.ord
    )
  into tags, rests, quotas
  from known k;
end
$$;
