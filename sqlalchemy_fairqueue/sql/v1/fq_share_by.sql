-- fq_share_by: say what the channels of a queue get equal parts of, in the caller's transaction: 'messages', as before
-- it is set; 'cost', what p_costs of fq_enqueue and fq_correct_costs say; 'seconds', the milliseconds that workers
-- measure and tell by fq_correct_costs.
-- Guarantees: takes effect on the next dequeue after the commit. The channels are moved into the other order as they
-- are served: no message is lost or passed over.
-- Locks: the queue's row; waits for another configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad
-- name or word; 40001; QF007.
create function fairqueue.fq_share_by(p_queue text, p_fair_by text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  if (p_fair_by in ('messages', 'cost', 'seconds')) is not true then
    raise exception 'fq_share_by has %', quote_nullable(left(p_fair_by, 80))
      using errcode = 'QF001', hint = 'say messages, cost or seconds';
  end if;
  insert into fairqueue.fq_queue as q (name, fair_by)
  values (p_queue, p_fair_by)
  on conflict (name) do update
  set fair_by = p_fair_by;
end
$$;
