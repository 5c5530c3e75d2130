-- fq_prune_dead_letters: delete the dead letters that are older than their queue keeps them, up to p_limit of each
-- queue, the oldest first. Returns for each queue that lost some how many, and whether there may be more.
-- Guarantees: a dead letter is deleted only after the retention of its kind, or else of its queue; without either it is
-- kept for ever. Two calls at once never delete the same one, and neither waits for the other.
-- Locks: dead letters, skip locked: it waits for none. Index: fq_queue_pkey, fq_dead_letter_died_ix; dead letters of a
-- kind with a longer retention than the queue's least one are read again by each call. Errors: QF001 bad limit; 40001.
create function fairqueue.fq_prune_dead_letters(p_limit integer default 10000)
returns table (queue text, deleted bigint, more boolean)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_queue record;
begin
  perform fairqueue.fq_check_number(
    'fq_prune_dead_letters has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint
  );
  for v_queue in
    select q.name, q.dead_letter_retention as retention,
      coalesce(q.dead_letter_retention_by_kind, '{}'::jsonb) as by_kind,
      (
        select least(q.dead_letter_retention, min(k.value::bigint))
        from jsonb_each_text(q.dead_letter_retention_by_kind) k
      ) as shortest
    from fairqueue.fq_queue q
    where q.dead_letter_retention is not null
      or q.dead_letter_retention_by_kind is not null
    order by q.name
  loop
    delete from fairqueue.fq_dead_letter t
    where t.ctid = any (array(
        select d.ctid
        from fairqueue.fq_dead_letter d
        where d.queue = v_queue.name
          and d.died_at < v_now - v_queue.shortest
          and d.died_at < v_now - coalesce((v_queue.by_kind ->> d.kind)::bigint, v_queue.retention)
        order by d.queue, d.died_at
        limit p_limit
        for update skip locked
      ));
    get diagnostics deleted = row_count;
    if deleted > 0 then
      queue := v_queue.name;
      more := deleted = p_limit;
      return next;
    end if;
  end loop;
end
$$;
