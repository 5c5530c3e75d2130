-- fq_forget_after: set for how many microseconds a queue keeps idle channels; null: for ever. Initially 30 days.
-- Guarantees: takes effect with the caller's commit; see fq_mark_idle_channels.
-- Locks: the queue's row; waits for another configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad
-- name or time; 40001; QF007.
create function fairqueue.fq_forget_after(p_queue text, p_after bigint)
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
  if p_after not between 1 and 3153600000000000 then
    raise exception 'fq_forget_after has % microseconds', p_after
      using errcode = 'QF001', hint = 'give 1 microsecond to 100 years, or null to keep channels for ever';
  end if;
  insert into fairqueue.fq_queue as q (name, forget_channels_after)
  values (p_queue, p_after)
  on conflict (name) do update
  set forget_channels_after = p_after;
end
$$;
