-- fq_retain_dead_letters: set for how many microseconds a queue keeps its dead letters, in the caller's transaction:
-- those of p_kind, or with p_kind null those of all kinds without a retention of their own. p_retention null: those of
-- the kind as those of all others; with p_kind null for ever, as initially.
-- Guarantees: takes effect with the caller's commit; the letters go when fq_prune_dead_letters runs after that. The
-- locked row is changed, so concurrent changes for different kinds both last.
-- Locks: the queue's row; waits for another configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad
-- name or retention, more than 1,000 kinds; 40001; QF007.
create function fairqueue.fq_retain_dead_letters(p_queue text, p_kind text, p_retention bigint)
returns void
language plpgsql
volatile
security definer
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
  c_most constant integer := 1000;
  v_kinds bigint;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  perform fairqueue.fq_check_names('{queue,kind}'::text[], array[p_queue, coalesce(p_kind, p_queue)]::text[]);
  if p_retention not between 1 and 3153600000000000 then
    raise exception 'fq_retain_dead_letters has retention % microseconds', p_retention
      using errcode = 'QF001', hint = 'keep dead letters for 1 microsecond to 100 years, or null to keep them for ever';
  end if;
  insert into fairqueue.fq_queue as q (name, dead_letter_retention, dead_letter_retention_by_kind)
  values (
    p_queue,
    case when p_kind is null then p_retention end,
    case when p_kind is not null and p_retention is not null then jsonb_build_object(p_kind, p_retention) end
  )
  on conflict (name) do update
  set dead_letter_retention = case when p_kind is null then p_retention else q.dead_letter_retention end,
    dead_letter_retention_by_kind = case
      when p_kind is null then q.dead_letter_retention_by_kind
      when p_retention is null then nullif(q.dead_letter_retention_by_kind - p_kind, '{}'::jsonb)
      else coalesce(q.dead_letter_retention_by_kind, '{}'::jsonb) || jsonb_build_object(p_kind, p_retention)
    end
  returning (
    select count(*)
    from jsonb_object_keys(q.dead_letter_retention_by_kind)
  )
  into v_kinds;
  if v_kinds > c_most then
    raise exception 'queue % has a retention of dead letters for % kinds', p_queue, v_kinds
      using errcode = 'QF001', hint = 'set one for at most 1000 kinds, and one for all others';
  end if;
end
$$;
