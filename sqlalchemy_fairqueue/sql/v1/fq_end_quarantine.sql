-- fq_end_quarantine: release quarantined messages into their channels, or delete them for good, in the caller's
-- transaction.
-- Guarantees: returns what became of each. With p_release 'released': the same message with the same id, due now, its
-- attempts counted anew and its hand-outs going on, without a key, with what could be read of it; 'unreadable': its
-- content or its kind is lost, so that it stays; 'refused': it could not be delivered again, so that it stays;
-- 'standing': a message has its id. Without p_release 'deleted'. 'missing': it is not there.
-- Locks: the rows, in the order of their ids. Index: fq_quarantine_message_ix. Errors: QF007.
create function fairqueue.fq_end_quarantine(p_queue text, p_message_ids bigint[], p_release boolean)
returns table (message_id bigint, outcome text)
language plpgsql
volatile
security definer
as $$
#variable_conflict use_column
declare
  v_now bigint := fairqueue.fq_now();
  v_dequeue_at bigint;
  v_row tid;
  r record;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  for r in
    select u.id, q.id as row_id, q.channel_id, num_nulls(q.content, q.kind) > 0 as is_lost
    from (
      select distinct x.id
      from unnest(p_message_ids) x(id)
      where x.id is not null
      order by x.id
    ) u
    left join lateral (
      select q.*
      from fairqueue.fq_quarantine q
      where q.queue = p_queue
        and q.message_id = u.id
      order by q.id desc
      limit 1
    ) q on true
    order by u.id
  loop
    message_id := r.id;
    perform
    from fairqueue.fq_quarantine q
    where q.id = r.row_id
    for update;
    if not found then
      outcome := 'missing';
    elsif not p_release then
      outcome := 'deleted';
    elsif r.is_lost then
      outcome := 'unreadable';
    else
      begin
        insert into fairqueue.fq_message (
          id, channel_id, kind, content, headers, dequeue_at, priority, enqueued_at, max_attempts, deliveries
        )
        overriding system value
        select q.message_id, q.channel_id, q.kind, q.content, q.headers,
          fairqueue.fq_position(v_now, q.priority, s.priority_aging), q.priority, q.enqueued_at, q.max_attempts,
          q.deliveries
        from fairqueue.fq_quarantine q
        left join lateral (
          select n.priority_aging
          from fairqueue.fq_channel_state n
          where n.channel_id = q.channel_id
          order by n.channel_id desc, n.row_version desc
          limit 1
        ) s on true
        where q.id = r.row_id
        returning ctid, dequeue_at into v_row, v_dequeue_at;
        if fairqueue.fq_test_message(r.id::bigint, v_row) is not null then
          raise program_limit_exceeded;
        end if;
        insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, bounded)
        values (p_queue, r.channel_id, v_dequeue_at, r.id, 1, true);
        outcome := 'released';
      exception
        when unique_violation then
          outcome := 'standing';
        when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
          outcome := 'refused';
      end;
    end if;
    if outcome in ('released', 'deleted') then
      delete from fairqueue.fq_quarantine q
      where q.queue = p_queue
        and q.message_id = r.id;
    end if;
    return next;
  end loop;
end
$$;
