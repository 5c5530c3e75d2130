-- fq_replace_message: replace the message that holds a key and has not been delivered yet: content, kind, headers, time
-- and priority, its attempts anew. Returns its id; no row: there is none, or it is out.
-- Guarantees: the message is told to its channel by a signal.
-- Locks: the message, which waits for a transaction that has it locked.
-- Index: fq_channel_queue_name_key, fq_message_dedupe_key, fq_channel_state_newest_ix. Errors: 40001.
create function fairqueue.fq_replace_message(
  p_queue text,
  p_channel text,
  p_kind text,
  p_content bytea,
  p_headers jsonb,
  p_delay bigint,
  p_at bigint,
  p_priority integer,
  p_key text,
  p_max_attempts integer,
  p_cost integer,
  p_now bigint
)
returns table (message_id bigint)
language plpgsql
volatile
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
begin
  return query
  with replaced as (
    update fairqueue.fq_message m
    set kind = p_kind,
      content = p_content,
      headers = p_headers,
      dequeue_at = fairqueue.fq_dequeue_at(
        p_now, p_delay, p_at, p_priority,
        (
          select n.priority_aging
          from fairqueue.fq_channel_state n
          where n.channel_id = m.channel_id
          order by n.channel_id desc, n.row_version desc
          limit 1
        )::bigint
      ),
      priority = p_priority,
      max_attempts = coalesce(p_max_attempts, 20),
      cost = p_cost,
      attempts = 0,
      returned_at = null,
      error = null
    where m.ctid = (
        select x.ctid
        from fairqueue.fq_channel c
        join fairqueue.fq_message x on x.channel_id = c.id and x.dedupe_key = p_key
        where c.queue = p_queue
          and c.name = p_channel
        limit 1
        for no key update of x
      )
      and num_nulls(m.lease_id) = 1
    returning m.id, m.channel_id, m.dequeue_at
  )
  insert into fairqueue.fq_signal as s (queue, channel_id, dequeue_at, message_id, added)
  select p_queue, a.channel_id, a.dequeue_at, a.id, 0
  from replaced a
  returning s.message_id;
end
$$;
