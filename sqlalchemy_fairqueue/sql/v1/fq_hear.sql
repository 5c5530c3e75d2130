-- fq_hear: apply one chunk of a queue's signals to the state of their channels, up to p_limit with an id above p_after,
-- in the caller's transaction. A dequeue does so by itself.
-- heard: signals applied; seen: signals read; first_id, last_id: their least and greatest id; scheduled_at: earliest
-- position of a channel heard of.
-- Guarantees: as fq_hear_signals; the next dequeue moves channels that it finds due into the ready order. Call again
-- with p_after = last_id while seen = p_limit, so that signals of channels that somebody else holds never fill every
-- chunk.
-- Locks, index: as fq_hear_signals. Errors: QF001 bad argument; QF007.
create function fairqueue.fq_hear(
  p_queue text,
  p_after bigint,
  p_limit integer,
  out heard integer,
  out seen integer,
  out first_id bigint,
  out last_id bigint,
  out scheduled_at bigint
)
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
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  if p_queue is null or p_after is null or p_limit is null or p_limit < 1 then
    raise exception 'fq_hear has queue %, after %, limit %', left(p_queue, 80), p_after, p_limit
      using errcode = 'QF001',
        hint = 'name a queue, a signal id to go on after (0: from the first) and a limit of 1 or more';
  end if;
  select h.heard, h.seen, h.first_id, h.last_id, h.scheduled_at
  into heard, seen, first_id, last_id, scheduled_at
  from fairqueue.fq_hear_signals(p_queue, p_after, p_limit, null::bigint) h;
end
$$;
