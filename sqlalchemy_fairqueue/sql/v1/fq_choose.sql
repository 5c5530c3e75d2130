-- fq_choose: lock up to p_width ready channels and choose up to p_limit of their messages, in the order of start tags.
-- p_pass: the number of the pass of fq_dequeue, from 0; p_bytes, p_first, p_skip: as for fq_cut_batch. Returns by
-- channel, in ready order: states: its row; limited: its messages hold a slot of it; estimates: what a message costs
-- that names no cost. givers: positions of the channels that fq_charge has to move; gots, charges, next_heads: what
-- fq_charge gets for each. By message: its row, and in ords the position of its channel. bytes: of all messages
-- together; passed: this call has locked fewer than p_width channels, though the ready order has more; skip: p_skip
-- and, if others have some messages locked or some wait for their ordering keys, those chosen here; is_cut: as
-- fq_cut_batch, or fq_hold_back has more to move; is_full: as fq_fit_costs. followed: a channel just got changed
-- values of its plan: choose again; null: none is ready.
-- Guarantees: no message starts later than an unlocked one that these channels keep, nor than one of a channel behind
-- these, nor, if passed, beyond bound_tag. But with is_cut a channel may keep an earlier one, and is due in 10 ms.
-- Locks: state rows, then messages, for no key update, skip locked. Index: fq_channel_state_ready_ix,
-- fq_message_ready_ix; rows by ctid. Errors: none.
create function fairqueue.fq_choose(
  p_queue text, p_sight record, p_width integer, p_limit integer, p_pass integer, p_bytes bigint, p_first boolean,
  p_skip bigint[], p_now bigint,
  out states tid[], out limited boolean[], out estimates integer[], out givers integer[], out gots integer[],
  out charges bigint[], out next_heads_at bigint[], out next_head_ids bigint[], out rows tid[], out ords integer[],
  out bytes bigint, out passed boolean, out skip bigint[], out is_cut boolean, out is_full boolean, out followed boolean
)
language plpgsql
as $$
declare
  v_state fairqueue.fq_queue_state := p_sight.state;
  v_channels bigint[];
  v_rooms integer[];
  v_heads_at bigint[];
  v_head_ids bigint[];
  v_tags bigint[];
  v_rests bigint[];
  v_weights integer[];
  v_found integer;
  v_upto bigint;
  v_depth integer;
  v_ids bigint[];
  v_costs bigint[];
  v_sizes bigint[];
  v_locked integer[];
  v_is_metered boolean;
  v_fits bigint[];
  v_stopped integer[];
  v_behind integer[];
begin
  -- Why the joins are so: see fq_choose_one.
  select array_agg(o.row), array_agg(o.channel_id), array_agg(o.limited), array_agg(o.room),
    array_agg(o.head_dequeue_at), array_agg(o.head_message_id), array_agg(o.ready_tag), array_agg(o.tag_rest),
    array_agg(o.weight), array_agg(o.estimate), count(*), bool_or(o.is_metered)
  into states, v_channels, limited, v_rooms, v_heads_at, v_head_ids, v_tags, v_rests, v_weights,
    estimates, v_found, v_is_metered
  from (
    select s.ctid as row, s.channel_id, s.weight, s.ready_tag, s.tag_rest, s.head_dequeue_at, s.head_message_id,
      num_nonnulls(s.max_concurrency, s.max_cost_out) > 0 as limited,
      num_nonnulls(s.max_cost_out) > 0 or s.rate_of = 'cost' as is_metered,
      fairqueue.fq_estimate(s.mean_cost, p_sight.is_timed::boolean) as estimate,
      least(
        p_limit, s.max_concurrency - s.current_concurrency,
        fairqueue.fq_rate_room(p_now, s.rate_at, s.rate_interval, s.rate_burst)
      )::integer as room
    from fairqueue.fq_ready_channels(p_queue, v_state.ready_floor, v_state.ready_channel, p_now) ready
    join fairqueue.fq_channel_state s
      on s.ctid = ready.state_row
      and s.row_version is not distinct from ready.row_version
      and s.channel_id is not distinct from ready.channel_id
    order by ready.tag, ready.channel_id
    limit p_width
    for no key update of s skip locked
  ) o;
  if v_found = 0 then
    return;
  end if;
  -- A channel whose plan has changed gets the new values before anything is taken from it.
  followed := false;
  if p_sight.plans then
    select f.followed + f.deferred > 0 into followed
    from fairqueue.fq_follow_plans(p_queue, v_channels, (p_sight.dispatch_row is not null)::boolean) f;
    if followed then
      return;
    end if;
  end if;

  passed := v_found < p_width and v_found < (
    select count(*)
    from (
      select
      from fairqueue.fq_ready_channels(p_queue, v_state.ready_floor, v_state.ready_channel, p_now)
      limit p_width
    ) x
  );
  if v_found = p_width or (passed and p_sight.bound_tag is not null) then
    v_upto := least(v_tags[v_found], case when passed then p_sight.bound_tag end);
  end if;
  -- Of each channel one message is read while others may be ready beyond these channels, otherwise twice its part of
  -- the batch. Each further pass reads twice as many.
  v_depth := case when v_upto is null then 2 * p_limit / v_found + 2 else 1 end;
  v_depth := least(v_depth::bigint << least(p_pass, 16), 100000);
  select c.rows, c.ids, c.ords, c.costs, c.sizes, c.givers, c.gots, c.charges, c.next_heads_at, c.next_head_ids,
    c.is_cut
  into rows, v_ids, ords, v_costs, v_sizes, givers, gots, charges, next_heads_at, next_head_ids, is_cut
  from fairqueue.fq_cut_batch(
    v_channels, v_heads_at, v_head_ids, v_rooms, v_tags, v_rests, v_weights, estimates,
    p_sight.by_cost::boolean, v_upto, v_depth, p_limit, p_bytes, p_first, p_skip, p_now
  ) c;
  if v_is_metered or num_nonnulls(p_sight.rate_left, p_sight.cost_left) > 0 then
    select f.numbers, f.stopped, f.is_full into v_fits, v_stopped, is_full
    from fairqueue.fq_fit_costs(states, ords, v_costs, p_sight, p_now) f;
  end if;
  select array_agg(l.number) filter (where l.goes), array_agg(ords[l.number]) filter (where not l.goes)
  into v_locked, v_behind
  from (
    select u.number, g.goes
    from unnest(rows, v_ids) with ordinality u(row, id, number)
    join fairqueue.fq_message x
      on x.ctid = u.row
      and x.id is not distinct from u.id
      and num_nulls(x.lease_id) = 1
    cross join lateral fairqueue.fq_goes_first(x.channel_id, x.ordering_key, x.id) g
    where is_full is null or u.number = any (v_fits)
    for no key update of x skip locked
  ) l;
  if coalesce(cardinality(v_locked), 0) < cardinality(v_ids) then
    -- The next pass goes on behind messages that others have locked or that wait for others of their ordering key.
    is_cut := (fairqueue.fq_hold_back(
      p_queue, v_channels, v_heads_at, v_head_ids, v_behind, (2 * v_depth + cardinality(p_skip))::integer, p_now
    )).has_more;
    v_stopped := v_stopped || case when is_cut then v_behind end;
    skip := p_skip || case when is_full is null then v_ids else array(select v_ids[n] from unnest(v_fits) n) end;
    is_full := is_full and coalesce(cardinality(v_locked), 0) = coalesce(cardinality(v_fits), 0);
    select array_agg(rows[n]), array_agg(ords[n]), array_agg(v_costs[n]), array_agg(v_sizes[n]), array_agg(v_ids[n])
    into rows, ords, v_costs, v_sizes, v_ids
    from unnest(v_locked) n;
    select array_agg(t.ord), array_agg(t.got), array_agg(t.charge) into givers, gots, charges
    from (
      select u.ord, count(*)::integer as got, sum(u.cost)::bigint as charge
      from unnest(ords, v_costs) u(ord, cost)
      group by u.ord
      union all
      select s.ord, 0, 0
      from (select g.ord from unnest(givers, gots) g(ord, got) where g.got = 0 union select unnest(v_stopped)) s(ord)
      where s.ord <> all (coalesce(ords, '{}'))
    ) t;
  end if;
  skip := coalesce(skip, p_skip);
  if cardinality(skip) > 0 or is_full is not null then
    select array_agg(h.heads_at[g.ord]), array_agg(h.head_ids[g.ord]) into next_heads_at, next_head_ids
    from fairqueue.fq_find_heads(v_channels, v_heads_at, v_head_ids, coalesce(v_ids, '{}')::bigint[]) h
    cross join unnest(givers) g(ord);
  end if;
  bytes := (select sum(z.size) from unnest(v_sizes) z(size));
end
$$;
