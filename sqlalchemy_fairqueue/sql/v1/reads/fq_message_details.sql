-- fq_message_details: messages of a queue that are not settled, with up to p_bytes of their contents: those with the
-- ids p_ids; if that is null, up to p_limit leased ones of the channel p_channel, and then up to p_limit undelivered
-- ones, in the order of delivery.
-- Guarantees: one snapshot; one row a message. content_size: bytes of the whole content. consumer, expires_at: of its
-- lease (null: it has none). behind: as fq_behind. If a message cannot be read, its texts, content and headers are
-- null, and unreadable says why.
-- Cost: the rows, and with p_ids null the queue's leased messages. Locks: none.
-- Index: fq_message_pkey, fq_message_ready_ix, fq_channel_queue_name_key, fq_lease_expires_ix, fq_message_lease_ix.
-- Errors: QF001 bad limit or bytes; QF007; none of a row's.
create function fairqueue.fq_message_details(
  p_queue text, p_ids bigint[], p_channel text, p_limit integer, p_bytes integer
)
returns table (
  message_id bigint, channel text, kind text, content bytea, content_size integer, headers text, key text,
  ordering_key text, behind bigint, enqueued_at bigint, dequeue_at bigint, delivered_at bigint, returned_at bigint,
  attempts integer, max_attempts integer, deliveries integer, cancelled boolean, cancelled_at bigint, consumer text, expires_at bigint,
  error text, unreadable text
)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
as $$
declare
  v_id bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_message_details has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  perform fairqueue.fq_check_number('fq_message_details has bytes'::text, p_bytes::bigint, 0::bigint, null::bigint);
  for v_id, channel, enqueued_at, dequeue_at, delivered_at, returned_at, attempts, max_attempts, deliveries, cancelled,
    cancelled_at, consumer, expires_at
  in
    with wanted as materialized (
      select n.id, 0 as step, n.id as ordinal
      from unnest(p_ids) n(id)
      union all
      (
        select m.id, 1, m.id
        from fairqueue.fq_find_channel(p_queue, p_channel) c
        cross join fairqueue.fq_lease e
        join fairqueue.fq_message m on m.lease_id = e.id and m.channel_id = c.id
        where p_ids is null
          and e.queue = p_queue
        order by m.id + 0
        limit p_limit
      )
      union all
      (
        select m.id, 2, row_number() over (order by m.channel_id, m.dequeue_at, m.id)
        from fairqueue.fq_find_channel(p_queue, p_channel) c
        join fairqueue.fq_message m on m.channel_id = c.id
        where p_ids is null
          and m.lease_id is null
        order by m.channel_id, m.dequeue_at, m.id
        limit p_limit
      )
    )
    -- Prioritised messages have a negative position, held ones the greatest: they are due since they were enqueued.
    select m.id, c.name, m.enqueued_at,
      case when m.dequeue_at between 0 and 9223372036854775806 then m.dequeue_at else m.enqueued_at end,
      m.delivered_at, m.returned_at, m.attempts, m.max_attempts, m.deliveries, m.cancelled, m.cancelled_at,
      e.consumer, e.expires_at
    from wanted w
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
    where c.queue = p_queue
    order by w.step, w.ordinal
  loop
    message_id := v_id;
    begin
      select m.kind || '', substring(m.content from 1 for p_bytes), octet_length(m.content), m.headers::text,
        m.key, m.ordering_key || '', fairqueue.fq_behind(m.id, null::bigint), m.error || '', null
      into kind, content, content_size, headers, key, ordering_key, behind, error, unreadable
      from fairqueue.fq_message m
      where m.id = v_id;
    exception
      when data_exception or program_limit_exceeded or internal_error then
        select left(sqlerrm, 1000), null, null, null, null, null, null, null, null
        into unreadable, kind, content, content_size, headers, key, ordering_key, behind, error;
    end;
    return next;
  end loop;
end
$$;
