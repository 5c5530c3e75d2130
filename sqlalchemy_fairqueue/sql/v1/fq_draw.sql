-- fq_draw: write down what a queue has drawn from its shared limits, after fq_draw_room in the same transaction.
-- p_drawn: how many messages; p_cost: what they cost, with corrections of earlier costs; p_contends: the limits held
-- back further messages. Returns when their rates allow the next message (null: now).
-- Guarantees: for a second after p_contends the other queues leave this queue its part of each limit.
-- Locks: none that fq_draw_room has not taken, but for the shares of the queue. Index: as fq_limit_members.
-- Errors: none.
create function fairqueue.fq_draw(p_queue text, p_limits text[], p_drawn integer, p_cost bigint, p_contends boolean)
returns bigint
language plpgsql
as $$
declare
  c_patience constant bigint := 1000000;
  v_now bigint := fairqueue.fq_now();
  v_allowed_at bigint;
  r record;
begin
  for r in
    select m.limit_row, m.share_row, m.tag, m.contends_until, f.rate_interval, f.rate_burst,
      fairqueue.fq_rate_after(
        (case when p_drawn > 0 then greatest(m.rate_at, v_now) else m.rate_at end)::bigint,
        (case when f.rate_of = 'cost' then p_cost else p_drawn end)::bigint, f.rate_interval
      ) as rate_at,
      case when f.rate_of = 'cost' or f.max_cost_out is not null then p_cost else p_drawn end as units
    from unnest(p_limits) l(name)
    join fairqueue.fq_limit f on f.name = l.name
    join lateral fairqueue.fq_limit_members(f.name::text) m on m.queue = p_queue
  loop
    v_allowed_at := greatest(
      v_allowed_at,
      fairqueue.fq_rate_allows_at(r.rate_at::bigint, r.rate_interval::bigint, r.rate_burst::integer)
    );
    if p_drawn > 0 or p_cost <> 0 then
      update fairqueue.fq_limit_share s
      set row_version = s.row_version + 1,
        rate_at = r.rate_at,
        tag = greatest(s.tag, r.tag)
      where s.ctid = r.limit_row;
    end if;
    if p_drawn > 0 or p_cost <> 0
      or p_contends <> (r.contends_until > v_now)
      or (p_contends and r.contends_until < v_now + c_patience / 2)
    then
      update fairqueue.fq_limit_share s
      set row_version = s.row_version + 1,
        tag = greatest(0, r.tag + r.units),
        contends_until = case when p_contends then v_now + c_patience else 0 end
      where s.ctid = r.share_row;
    end if;
  end loop;
  return case when v_allowed_at > v_now then v_allowed_at end;
end
$$;
