-- fq_audits: up to p_limit things that operators did to a queue, the last first; only those to its channel p_channel or
-- to the message p_message_id; without these also things done to the installation. Null restricts nothing. p_before,
-- p_before_id: only what was done before the row with both, or, without an id, before that time.
-- Guarantees: one snapshot. Cost: the rows of the queue, down to the last one that is returned. Locks: none.
-- Index: fq_audit_queue_ix. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_audits(
  p_queue text, p_channel text, p_message_id bigint, p_before bigint, p_before_id text, p_limit integer
)
returns table (
  audit_id text, queue text, at bigint, who text, what text, channel text, message_id bigint, details text
)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
as $$
declare
  v_before bigint := coalesce(p_before, 9223372036854775807);
  v_id uuid := left(coalesce(p_before_id, '00000000-0000-0000-0000-000000000000'), 100)::uuid;
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_audits has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  return query
  select u.audit_id::text, u.queue, u.at, u.who, u.what, u.channel, u.message_id, u.details::text
  from (
    (
      select a.*
      from fairqueue.fq_audit a
      where a.queue = p_queue
        and (p_channel is null or a.channel = p_channel)
        and (p_message_id is null or a.message_id = p_message_id)
        and (a.at, a.audit_id) < (v_before, v_id)
      order by a.at desc, a.audit_id desc
      limit p_limit
    )
    union all
    (
      select a.*
      from fairqueue.fq_audit a
      where a.queue is null
        and num_nonnulls(p_channel, p_message_id) = 0
        and (a.at, a.audit_id) < (v_before, v_id)
      order by a.at desc, a.audit_id desc
      limit p_limit
    )
  ) u
  order by u.at desc, u.audit_id desc
  limit p_limit;
end
$$;
