-- fq_quarantined: the messages of a queue that stand in the quarantine, the oldest first, without their contents.
-- p_after: only those after this id. p_limit null: all. content_size and headers_size: bytes as stored; null: not kept.
-- Locks: none. Index: fq_quarantine_pkey, fq_channel_pkey. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_quarantined(p_queue text, p_after bigint default 0, p_limit integer default 100)
returns table (
  id bigint,
  message_id bigint,
  channel text,
  kind text,
  content_size integer,
  headers_size integer,
  enqueued_at bigint,
  attempts integer,
  deliveries integer,
  unreadable text[],
  reason text,
  set_aside_at bigint
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if p_limit < 1 then
    raise exception 'fq_quarantined has limit %', p_limit
      using errcode = 'QF001', hint = 'ask for 1 message or more';
  end if;
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  return query
  select q.id, q.message_id, c.name, q.kind, octet_length(q.content), pg_column_size(q.headers), q.enqueued_at,
    q.attempts, q.deliveries, q.unreadable, q.reason, q.set_aside_at
  from fairqueue.fq_quarantine q
  left join fairqueue.fq_channel c on c.id = q.channel_id
  where q.queue = p_queue
    and q.id > p_after
  order by q.id
  limit p_limit;
end
$$;
