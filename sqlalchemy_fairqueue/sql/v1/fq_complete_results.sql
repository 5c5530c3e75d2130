-- fq_complete_results: fq_complete, and keep what the handlers returned, in the caller's transaction. Returns the lost
-- ones, as fq_complete does.
-- p_kept: of which a result is kept; p_results: it, encoded, null: None; p_problems: why it is not, null: it is.
-- Guarantees: a result stands there if and only if its message is gone by this call, or was cancelled before: of a
-- message that was cancelled while a consumer held it, that stays what became of it. It is kept for as long as the
-- queue says by then; if the queue keeps none any more, nothing is. p_notify: notify those who wait for it (false in a
-- two-phase transaction).
-- Locks: as fq_complete, and then the key of the result, which waits for nobody but a transaction that holds the
-- message.
-- Index: as fq_complete, fq_message_pkey, fq_result_pkey, fq_result_wait_pkey.
-- Errors: as fq_complete; 23514 a result of more than 1,048,576 bytes.
create function fairqueue.fq_complete_results(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_kept boolean[],
  p_results bytea[], p_problems text[], p_notify boolean
)
returns table (message_id bigint, outcome text)
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
#variable_conflict use_column
declare
  v_now bigint := fairqueue.fq_now();
  v_channels text[];
  v_kinds text[];
  v_lost bigint[];
begin
  select array_agg(m.channel order by u.ord), array_agg(m.kind order by u.ord)
  into v_channels, v_kinds
  from unnest(p_ids) with ordinality u(id, ord)
  left join lateral (
    select x.kind, c.name as channel
    from fairqueue.fq_message x
    join fairqueue.fq_channel c on c.id = x.channel_id
    where x.id = u.id
    limit 1
  ) m on true;
  select array_agg(c.message_id) into v_lost
  from fairqueue.fq_complete(
    p_queue::text, p_ids::bigint[], p_rows::tid[], p_lease_ids::bigint[], p_deliveries::integer[]
  ) c;
  insert into fairqueue.fq_result (
    message_id, queue, channel, kind, outcome, content, problem, finished_at, expires_at
  )
  select u.id, p_queue, u.channel, u.kind, case when u.problem is null then 'completed' else 'unkept' end, u.content,
    u.problem, v_now, v_now + q.result_retention
  from unnest(p_ids, v_channels, v_kinds, p_kept, p_results, p_problems)
    u(id, channel, kind, kept, content, problem)
  join fairqueue.fq_queue q on q.name = p_queue
  where u.kept
    and u.channel is not null
    and q.result_retention is not null
    and (u.id = any (v_lost)) is not true
  on conflict on constraint fq_result_pkey do nothing;
  if p_notify then
    perform fairqueue.fq_wake_results(p_queue::text, p_ids::bigint[]);
  end if;
  return query
  select l.id, 'lost'
  from unnest(v_lost) l(id);
end
$$;
