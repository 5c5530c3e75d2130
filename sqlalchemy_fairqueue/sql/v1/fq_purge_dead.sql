-- fq_purge_dead: delete dead letters of a queue for good, in the caller's transaction: those that fq_lock_dead_letters
-- finds. Returns how many.
-- Guarantees: all or nothing with the caller's transaction.
-- Locks, index: as fq_lock_dead_letters. Errors: 40001; QF007.
create function fairqueue.fq_purge_dead(
  p_queue text, p_ids bigint[] default null, p_channel text default null, p_kind text default null,
  p_before bigint default null, p_key text default null, p_ordering_key text default null
)
returns bigint
language plpgsql
security definer
as $$
declare
  v_ids bigint[];
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  v_ids := fairqueue.fq_lock_dead_letters(
    p_queue, p_ids, p_channel, p_kind, p_key, p_ordering_key, p_before, null::integer
  );
  delete from fairqueue.fq_dead_letter d
  where d.message_id = any (v_ids);
  return coalesce(cardinality(v_ids), 0);
end
$$;
