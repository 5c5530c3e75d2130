-- fq_cut_batch: cut a batch that has more bytes than p_bytes_left before the first message that is too much. The first
-- arrays have an element a message: p_rows its row, p_ords the place of its channel, p_ranks its place in the channel,
-- p_sizes its bytes, and, of a queue that is fair by cost (else null), p_starts its start in virtual time and p_costs
-- its cost. The others have an element a channel: p_quotas how many messages it may give, p_turns_left what was left of
-- its turn, p_weights its weight. p_first: whether nothing was taken before; one message passes then, whatever its
-- size. Returns the messages that stay, their bytes, how many each channel gives; quotas: 0 for channels that must keep
-- their turn. in_first_turn: whether the message that is too much is of the first turn of its channel. The batch ends
-- then, as if fewer messages had been asked for. Else a further pass takes the last turns one by one, so that the
-- channels that have them get new positions.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_cut_batch(
  p_rows tid[],
  p_ords bigint[],
  p_ranks integer[],
  p_sizes integer[],
  p_starts bigint[],
  p_costs bigint[],
  p_quotas integer[],
  p_turns_left integer[],
  p_weights integer[],
  p_bytes_left bigint,
  p_first boolean,
  out rows tid[],
  out ords bigint[],
  out ranks integer[],
  out starts bigint[],
  out costs bigint[],
  out bytes bigint,
  out gots integer[],
  out quotas integer[],
  out in_first_turn boolean
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
declare
  v_by_cost boolean := p_starts is not null;
  -- the first message that is too much: the how many-th turn of its channel, its start, whose, the how many-th
  v_turn bigint;
  v_start bigint;
  v_ord bigint;
  v_rank integer;
begin
  select s.turn, s.start, s.ord, s.rank into v_turn, v_start, v_ord, v_rank
  from (
    select t.turn, t.start, t.ord, t.rank,
      row_number() over in_turn as place,
      sum(t.size) over in_turn as bytes
    from (
      select u.ord, u.rank, u.size, u.start,
        case
          when v_by_cost or u.rank <= p_turns_left[u.ord] then 0
          else 1 + (u.rank - p_turns_left[u.ord] - 1) / p_weights[u.ord]
        end as turn
      from unnest(p_ords, p_ranks, p_sizes, p_starts) u(ord, rank, size, start)
    ) t
    window in_turn as (order by t.turn, t.start, t.ord, t.rank)
  ) s
  where s.bytes > p_bytes_left
    and (s.place > 1 or not p_first)
  order by s.place
  limit 1;
  in_first_turn := v_turn = 0;
  select array_agg(u.row), array_agg(u.ord), array_agg(u.rank), sum(u.size), array_agg(u.start), array_agg(u.cost)
  into rows, ords, ranks, bytes, starts, costs
  from unnest(p_rows, p_ords, p_ranks, p_sizes, p_starts, p_costs) u(row, ord, rank, size, start, cost)
  where case
      when v_by_cost then (u.start, u.ord, u.rank) < (v_start, v_ord, v_rank)
      when in_first_turn then u.rank <= p_turns_left[u.ord] and (u.ord, u.rank) < (v_ord, v_rank)
      else u.rank <= p_turns_left[u.ord] + (v_turn - 1) * p_weights[u.ord]
    end;
  quotas := p_quotas;
  gots := array_fill(0, array[cardinality(p_quotas)]);
  for i in 1..coalesce(cardinality(rows), 0) loop
    gots[ords[i]] := gots[ords[i]] + 1;
  end loop;
  if v_by_cost then
    for i in 1..cardinality(quotas) loop
      quotas[i] := case when gots[i] > 0 then quotas[i] else 0 end;
    end loop;
  elsif in_first_turn then
    for i in v_ord + (v_rank > 1)::integer..cardinality(quotas) loop
      quotas[i] := 0;
    end loop;
  end if;
end
$$;
