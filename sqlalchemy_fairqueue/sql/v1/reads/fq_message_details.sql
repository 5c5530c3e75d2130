-- fq_message_details: the messages of a queue that are not settled and have the ids p_ids, with up to p_bytes of their
-- contents, in the order of p_ids.
-- Guarantees: one snapshot; one row a message. content_size: bytes of the whole content. consumer, expires_at: of its
-- lease (null: it has none). behind: as fq_behind. messages_ahead: how many come before it in its channel; null: it is
-- leased, or there are p_ahead or more. If a message cannot be read, its texts, content and headers are null, and
-- unreadable says why.
-- Cost: the rows, and the messages that are counted. Locks: none. Index: fq_message_pkey, fq_message_ready_ix,
-- fq_channel_pkey, fq_lease_pkey. Errors: QF001 bad bytes or ahead; QF007; none of a row's.
create function fairqueue.fq_message_details(p_queue text, p_ids bigint[], p_bytes integer, p_ahead integer)
returns table (
  message_id bigint, channel text, kind text, content bytea, content_size integer, headers text, key text,
  ordering_key text, behind bigint, enqueued_at bigint, dequeue_at bigint, delivered_at bigint, returned_at bigint,
  attempts integer, max_attempts integer, deliveries integer, cancelled boolean, cancelled_at bigint, consumer text,
  expires_at bigint, messages_ahead bigint, error text, unreadable text
)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_message_details has bytes'::text, p_bytes::bigint, 0::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_message_details has ahead'::text, p_ahead::bigint, 0::bigint, null::bigint);
  for message_id, channel, enqueued_at, dequeue_at, delivered_at, returned_at, attempts, max_attempts, deliveries,
    cancelled, cancelled_at, consumer, expires_at, messages_ahead
  in
    -- Prioritised messages have a negative position, held ones the greatest: they are due since they were enqueued.
    select m.id, c.name, m.enqueued_at,
      case when m.dequeue_at between 0 and 9223372036854775806 then m.dequeue_at else m.enqueued_at end,
      m.delivered_at, m.returned_at, m.attempts, m.max_attempts, m.deliveries, m.cancelled, m.cancelled_at,
      e.consumer, e.expires_at, case when m.lease_id is null then nullif(a.messages, p_ahead) end
    from unnest(p_ids) with ordinality w(id, ordinal)
    cross join lateral (
      select x.*
      from fairqueue.fq_message x
      where x.id = w.id
      limit 1
    ) m
    cross join lateral (
      select x.queue, x.name
      from fairqueue.fq_channel x
      where x.id = m.channel_id
      limit 1
    ) c
    left join fairqueue.fq_lease e on e.id = m.lease_id
    cross join lateral (
      select count(*) as messages
      from (
        select
        from fairqueue.fq_message b
        where m.lease_id is null
          and b.channel_id = m.channel_id
          and b.lease_id is null
          and (b.dequeue_at, b.id) < (m.dequeue_at, m.id)
        limit p_ahead
      ) b
    ) a
    where c.queue = p_queue
    order by w.ordinal
  loop
    begin
      select m.kind || '', substring(m.content from 1 for p_bytes), octet_length(m.content), m.headers::text,
        m.key, m.ordering_key || '', fairqueue.fq_behind(m.id, null::bigint), m.error || '', null
      into kind, content, content_size, headers, key, ordering_key, behind, error, unreadable
      from fairqueue.fq_message m
      where m.id = message_id;
    exception
      when data_exception or program_limit_exceeded or internal_error then
        select left(sqlerrm, 1000), null, null, null, null, null, null, null, null
        into unreadable, kind, content, content_size, headers, key, ordering_key, behind, error;
    end;
    return next;
  end loop;
end
$$;
