-- fq_quarantine: remove a message that the caller has locked from its queue for good. It becomes a dead letter if a
-- letter can hold it. Else the columns that can be read go into the table of the same name.
-- Guarantees: returns 'dead' or 'quarantined'. Its slots are freed and its channel's backlog is told by a signal. An
-- attempt that was handed out while the queue recorded its history is appended to it as 'buried'.
-- Locks: only the row, which the caller holds. Index: none, the row by ctid. Errors: none of the row's.
create function fairqueue.fq_quarantine(p_queue text, p_id bigint, p_row tid, p_reason text)
returns text
language plpgsql
volatile
as $$
declare
  v_undelivered boolean;
  v_channel_id bigint;
  v_slots integer;
  v_content bytea;
  v_headers jsonb;
  v_kind text;
  v_key text;
  v_attempt bigint[];
  v_unreadable text[] := '{}';
  v_group_id uuid;
begin
  select num_nulls(m.lease_id) = 1, m.channel_id, m.slots into v_undelivered, v_channel_id, v_slots
  from fairqueue.fq_message m
  where m.ctid = p_row
    and m.id is not distinct from p_id;
  begin
    perform fairqueue.fq_bury_messages(
      p_queue, array[p_id]::bigint[], array[p_row]::tid[], array[p_reason]::text[], null::text[]
    );
    -- What a look at the letters reads of it.
    perform octet_length(convert_to(d.headers::text, 'UTF8'))
    from fairqueue.fq_dead_letter d
    where d.message_id = p_id;
    if v_undelivered then
      insert into fairqueue.fq_signal (queue, channel_id, added, bounded)
      values (p_queue, v_channel_id, -1, true);
    end if;
    return 'dead';
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;

  begin
    select m.content || ''::bytea into v_content
    from fairqueue.fq_message m
    where m.ctid = p_row;
  exception
    when data_exception or program_limit_exceeded or internal_error then
      v_unreadable := v_unreadable || 'content'::text;
  end;
  begin
    select m.headers #> '{}'::text[] into v_headers
    from fairqueue.fq_message m
    where m.ctid = p_row;
  exception
    when data_exception or program_limit_exceeded or internal_error then
      v_unreadable := v_unreadable || 'headers'::text;
  end;
  begin
    select m.kind || '' into v_kind
    from fairqueue.fq_message m
    where m.ctid = p_row;
  exception
    when data_exception or program_limit_exceeded or internal_error then
      v_unreadable := v_unreadable || 'kind'::text;
  end;
  begin
    select m.dedupe_key || '' into v_key
    from fairqueue.fq_message m
    where m.ctid = p_row;
  exception
    when data_exception or program_limit_exceeded or internal_error then
      v_unreadable := v_unreadable || 'dedupe_key'::text;
  end;
  with gone as (
    delete from fairqueue.fq_message m
    where m.ctid = p_row
      and m.id is not distinct from p_id
    returning m.priority, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries,
      case when m.lease_id is not null and not m.cancelled then m.group_id end as group_id,
      fairqueue.fq_attempt(
        m.channel_id, m.id, m.attempts, m.enqueued_at, m.dequeue_at, m.returned_at, m.delivered_at, m.lease_id,
        m.cost::integer, m.group_id
      ) as attempt
  ),
  kept as (
    insert into fairqueue.fq_quarantine (
      message_id, queue, channel_id, kind, content, headers, dedupe_key, priority, enqueued_at, attempts, max_attempts,
      deliveries, unreadable, reason, set_aside_at
    )
    select p_id, p_queue, v_channel_id, v_kind, v_content, v_headers, v_key, g.priority, g.enqueued_at, g.attempts,
      g.max_attempts, g.deliveries, v_unreadable, p_reason, fairqueue.fq_now()
    from gone g
  )
  select g.attempt, g.group_id into v_attempt, v_group_id
  from gone g;
  if v_group_id is not null then
    perform fairqueue.fq_end_members(array[p_id]::bigint[], array[v_group_id]::uuid[], true::boolean);
  end if;
  if v_undelivered or v_slots > 0 then
    insert into fairqueue.fq_signal (queue, channel_id, added, bounded, freed, queue_freed)
    values (p_queue, v_channel_id, -v_undelivered::integer, v_undelivered, v_slots & 1, v_slots >> 1 & 1);
  end if;
  if v_attempt is not null then
    perform fairqueue.fq_record_attempts(
      p_queue, array[v_attempt]::bigint[], array[coalesce(v_kind, '')]::text[], array[p_reason]::text[], 'buried'::text,
      null::boolean[], null::bigint
    );
  end if;
  return 'quarantined';
end
$$;
