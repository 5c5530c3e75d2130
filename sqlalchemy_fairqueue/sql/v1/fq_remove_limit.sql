-- fq_remove_limit: remove a shared limit, if there is one, in the caller's transaction.
-- Guarantees: a limit that queues draw from stays.
-- Locks: the limit's row for update: waits for another change of it, and for a queue that begins to draw from it.
-- Index: fq_limit_pkey, fq_limit_share_newest_ix. Errors: QF001 queues draw from it; QF007: for operators of all
-- queues.
create function fairqueue.fq_remove_limit(p_name text)
returns void
language plpgsql
security definer
as $$
declare
  v_queues text;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], null::text, null::text[]);
  perform
  from fairqueue.fq_limit f
  where f.name = p_name
  for update;
  select string_agg(left(m.queue, 80), ', ') into v_queues
  from fairqueue.fq_limit_members(p_name) m;
  if v_queues is not null then
    raise exception 'the limit % is that of %', left(p_name, 80), left(v_queues, 400)
      using errcode = 'QF001', hint = 'take it from these queues first: configure(limits=...) without it';
  end if;
  delete from fairqueue.fq_limit_share s
  where s.limit_name = p_name;
  delete from fairqueue.fq_limit f
  where f.name = p_name;
end
$$;
