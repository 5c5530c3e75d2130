-- fq_dead_letters: up to p_limit dead letters of a queue (null: all), the oldest death first. Null restricts nothing.
-- p_died_at, p_message_id: those of the last row of the page before; p_error: a text that the reason or the error
-- contains; p_since, p_until: died from then on, and before then. max_attempts: the limit of the message; the policy of
-- a worker may have been lower, which the reason says.
-- Guarantees: one row each. If one cannot be read, its texts, content and headers are null, and unreadable says why.
-- Cost: what is returned. With p_error, which no index has: the dead letters between the times, or after the page
-- before, of the channel or the kind (of one of them, if both are given), until p_limit fit. Locks: none.
-- Index: fq_dead_letter_died_ix, fq_dead_letter_kind_ix, fq_dead_letter_channel_ix or fq_dead_letter_pkey,
-- fq_channel_pkey, fq_channel_queue_name_key. Errors: QF001 bad limit; QF007; none of a row's.
create function fairqueue.fq_dead_letters(
  p_queue text, p_ids bigint[] default null, p_channel text default null, p_kind text default null,
  p_died_at bigint default null, p_message_id bigint default null, p_limit integer default 100,
  p_error text default null, p_since bigint default null, p_until bigint default null, p_key text default null,
  p_ordering_key text default null
)
returns table (
  message_id bigint, channel text, kind text, content bytea, headers text, key text, ordering_key text,
  enqueued_at bigint, attempts integer, max_attempts integer, deliveries integer, reason text, error text,
  died_at bigint, unreadable text
)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
set enable_sort = off
as $$
declare
  v_channel_id bigint;
begin
  perform fairqueue.fq_check_number('fq_dead_letters has limit'::text, p_limit::bigint, 1::bigint, null::bigint)
  where p_limit is not null;
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  v_channel_id := (select k.id from fairqueue.fq_channel k where k.queue = p_queue and k.name = p_channel);
  if v_channel_id is null and p_channel is not null then
    return;
  end if;
  return query
  select p.message_id, p.channel, r.kind, r.content, r.headers, r.key, r.ordering_key, p.enqueued_at, p.attempts,
    p.max_attempts, p.deliveries, r.reason, r.error, p.died_at, r.unreadable
  from (
    select d.message_id, c.name as channel, d.enqueued_at, d.attempts, d.max_attempts, d.deliveries, d.died_at
    from fairqueue.fq_dead_letter d
    join fairqueue.fq_channel c on c.id = d.channel_id
    where d.queue = p_queue
      and (p_ids is null or d.message_id = any (p_ids))
      and (v_channel_id is null or d.channel_id = v_channel_id)
      and (p_kind is null or d.kind = p_kind)
      and (p_key is null or d.key = p_key)
      and (p_ordering_key is null or d.ordering_key = p_ordering_key)
      and d.died_at >= coalesce(p_since, 0)
      and d.died_at < coalesce(p_until, 9223372036854775807)
      and (p_died_at is null or (d.died_at, d.message_id) > (p_died_at, p_message_id))
      and (
        p_error is null
        or exists (
          select
          from fairqueue.fq_read_dead_letter(d.message_id::bigint, false::boolean) t
          where strpos(t.reason, p_error) > 0
            or strpos(t.error, p_error) > 0
        )
      )
    order by d.died_at, d.message_id
    limit p_limit
  ) p
  cross join lateral fairqueue.fq_read_dead_letter(p.message_id::bigint, true::boolean) r
  order by p.died_at, p.message_id;
end
$$;
