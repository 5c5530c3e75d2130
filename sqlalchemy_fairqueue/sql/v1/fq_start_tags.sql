-- fq_start_tags: where messages start in virtual time that a dequeue takes from a queue that is fair by cost, and what
-- each costs. By message: its row, the how many-th channel it is of, the how many-th of that. By channel: tag, rest,
-- weight.
-- Guarantees: in the order of the messages. Locks: none. Index: none, rows by ctid. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_start_tags(
  p_rows tid[],
  p_ords bigint[],
  p_ranks integer[],
  p_tags bigint[],
  p_rests bigint[],
  p_weights integer[],
  out starts bigint[],
  out costs bigint[]
)
language sql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select array_agg(s.start order by s.number), array_agg(s.cost order by s.number)
  from (
    select c.number, c.cost,
      fairqueue.fq_tag_after(
        (p_tags[c.ord])::bigint, (p_rests[c.ord])::bigint,
        (sum(c.cost) over (partition by c.ord order by c.rank) - c.cost)::bigint, (p_weights[c.ord])::integer
      ) as start
    from (
      select u.ord, u.rank, u.number, greatest(0, coalesce(m.cost, 1))::bigint as cost
      from unnest(p_rows, p_ords, p_ranks) with ordinality u(row, ord, rank, number)
      join fairqueue.fq_message m on m.ctid = u.row
    ) c
  ) s
$$;
