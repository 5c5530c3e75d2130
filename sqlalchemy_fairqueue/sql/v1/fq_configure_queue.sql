-- fq_configure_queue: change the defaults of a queue: the policy that channels made from now on start with. Existing
-- channels keep theirs. p_changes: the fields to change, as fq_changed_policy takes them. p_policy: what they change,
-- if the queue has no defaults yet.
-- Guarantees: takes effect with the caller's commit. The locked row is changed, so concurrent changes of different
-- fields both last.
-- Locks: the queue's row; waits for another configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad
-- name or policy; 40001; QF007.
create function fairqueue.fq_configure_queue(p_queue text, p_changes jsonb, p_policy jsonb default null)
returns void
language plpgsql
security definer
as $$
declare
  v_initial jsonb := fairqueue.fq_changed_policy(null::jsonb, p_policy);
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  insert into fairqueue.fq_queue as q (name, defaults)
  values (p_queue, fairqueue.fq_changed_policy(v_initial, p_changes))
  on conflict (name) do update
  set defaults = fairqueue.fq_changed_policy(coalesce(q.defaults, v_initial)::jsonb, p_changes);
end
$$;
