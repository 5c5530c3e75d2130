-- fq_dead_letters: dead letters of a queue with their contents, the oldest death first, at most p_limit after the one
-- that died at p_died_at with the id p_message_id. Of ids, channel and kind each that is given must be met.
-- Guarantees: one snapshot. Times in microseconds since the epoch, headers as text.
-- Locks: none. Index: fq_dead_letter_died_ix, fq_channel_pkey. Errors: QF007.
create function fairqueue.fq_dead_letters(
  p_queue text,
  p_ids bigint[],
  p_channel text,
  p_kind text,
  p_died_at bigint,
  p_message_id bigint,
  p_limit integer
)
returns table (
  message_id bigint,
  channel text,
  kind text,
  content bytea,
  headers text,
  dedupe_key text,
  enqueued_at bigint,
  attempts integer,
  max_attempts integer,
  deliveries integer,
  reason text,
  error text,
  died_at bigint
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  return query
  select d.message_id, c.name, d.kind, d.content, d.headers::text, d.dedupe_key, d.enqueued_at, d.attempts,
    d.max_attempts, d.deliveries, d.reason, d.error, d.died_at
  from fairqueue.fq_dead_letter d
  join fairqueue.fq_channel c on c.id = d.channel_id
  where d.queue = p_queue
    and (p_ids is null or d.message_id = any (p_ids))
    and (p_channel is null or c.name = p_channel)
    and (p_kind is null or d.kind = p_kind)
    and (p_died_at is null or (d.died_at, d.message_id) > (p_died_at, p_message_id))
  order by d.died_at, d.message_id
  limit p_limit;
end
$$;
