-- fq_completions: how many attempts of some queues were completed, and how many failed (retried, buried, expired), by
-- channel, among those that were recorded after the snapshot p_before and before this one, each counted once.
-- Guarantees: the transaction ids decide, since ids and times would miss attempts that are committed late. It reads
-- what was recorded since, however long a transaction has been open.
-- Locks: none. Index: fq_history_recorded_ix. Errors: QF001 no snapshot; QF007.
create function fairqueue.fq_completions(p_before text, p_queues text[])
returns table (queue text, channel text, completed bigint, failed bigint)
language plpgsql
stable
security definer
as $$
declare
  v_before pg_snapshot;
begin
  begin
    v_before := p_before::pg_snapshot;
  exception
    when invalid_text_representation then
      raise exception 'fq_completions has snapshot %', left(p_before, 100)
        using errcode = 'QF001', hint = 'give what pg_current_snapshot() told as text';
  end;
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], q.name, null::text[])
  from unnest(p_queues) q(name);
  -- p_before does not see transactions that were open then, and those that began later.
  return query
  select h.queue, h.channel, count(*) filter (where h.outcome = 'completed'),
    count(*) filter (where h.outcome in ('retried', 'buried', 'expired'))
  from (
    select o.queue, o.channel, o.outcome
    from fairqueue.fq_history o
    where o.recorded_xid = any (
      array(
        select pg_snapshot_xip(v_before)
      )
    )
    union all
    select n.queue, n.channel, n.outcome
    from fairqueue.fq_history n
    where n.recorded_xid >= pg_snapshot_xmax(v_before)
  ) h
  where h.queue = any (p_queues)
  group by h.queue, h.channel;
end
$$;
