-- fq_undelivered: up to p_limit undelivered messages of a channel that fit: p_key, p_ordering_key, p_kind; p_state:
-- 'ready', 'scheduled' or 'held'; enqueued from p_since on and before p_until. Null restricts nothing.
-- Guarantees: one snapshot. A missing channel has none.
-- Cost: with a key or an ordering key, the messages that have it; otherwise the undelivered ones of the channel, with
-- 'scheduled' those that are due later, until p_limit fit. Locks: none.
-- Index: fq_channel_queue_name_key, fq_message_key, fq_message_ordering_ix, fq_message_ready_ix; those of
-- fq_message_state. Errors: QF001 bad state or limit; QF007.
create function fairqueue.fq_undelivered(
  p_queue text, p_channel text, p_key text, p_ordering_key text, p_kind text, p_state text, p_since bigint,
  p_until bigint, p_limit bigint
)
returns table (message_id bigint)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_channel_id bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if p_state not in ('ready', 'scheduled', 'held') then
    raise exception 'fq_undelivered has state %', left(p_state, 80)
      using errcode = 'QF001', hint = 'ask for state ready, scheduled or held, or null';
  end if;
  perform fairqueue.fq_check_number('fq_undelivered has limit'::text, p_limit::bigint, 1::bigint, null::bigint)
  where p_limit is not null;
  select c.id into v_channel_id
  from fairqueue.fq_find_channel(p_queue, p_channel) c;
  return query
  select m.id
  from fairqueue.fq_message m
  where m.channel_id = v_channel_id
    and m.lease_id is null
    and (
      p_key is null
      -- By ctid, since old statistics could prefer fq_message_ready_ix.
      or m.ctid = (
        select k.ctid
        from fairqueue.fq_message k
        where k.channel_id = v_channel_id
          and k.key = p_key
        limit 1
      )
    )
    and (p_ordering_key is null or m.ordering_key = p_ordering_key)
    and (p_kind is null or m.kind = p_kind)
    and m.enqueued_at >= coalesce(p_since, 0)
    and m.enqueued_at < coalesce(p_until, 9223372036854775807)
    and m.dequeue_at >= case when p_state = 'scheduled' then v_now + 1 else -9223372036854775807 end
    and (
      p_state is null
      or fairqueue.fq_message_state(m.id, m.lease_id, m.dequeue_at, v_now) = p_state
    )
  limit p_limit;
end
$$;
