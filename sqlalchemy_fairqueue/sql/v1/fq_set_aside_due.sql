-- fq_set_aside_due: take back the messages of a queue's expired leases and promote those that came due, the first 1,000
-- of each, as a dequeue does at first. Those that cannot be delivered are taken out of the way before. One row each, as
-- fq_set_aside returns them.
-- Guarantees: each is tried by itself and undone.
-- Locks: as fq_reclaim and fq_promote, and messages for update, all skip locked: it waits for none.
-- Index: as those; fq_message_pkey. Errors: none of the rows'.
create function fairqueue.fq_set_aside_due(p_queue text, p_now bigint)
returns table (message_id bigint, channel_id bigint, outcome text, reason text)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  r record;
begin
  for r in
    select m.ctid as row, m.id, m.channel_id, suspect.expired
    from (
      (
        select x.id, true
        from fairqueue.fq_lease e
        join fairqueue.fq_message x on x.lease_id = e.id
        where e.queue = p_queue
          and e.expires_at <= p_now
        order by e.queue, e.expires_at, e.id
        limit 1000
      )
      union all
      (
        select g.message_id, false
        from fairqueue.fq_promotion g
        where g.queue = p_queue
          and g.due_at <= p_now
        order by g.queue, g.due_at, g.message_id
        limit 1000
      )
    ) suspect (id, expired)
    join fairqueue.fq_message m on m.id = suspect.id
    for update of m skip locked
  loop
    reason := fairqueue.fq_test_message(r.id::bigint, r.row::tid);
    if reason is null and r.expired then
      reason := fairqueue.fq_test_reclaim(p_queue, r.id::bigint, r.row::tid);
    end if;
    if reason is not null then
      message_id := r.id;
      channel_id := r.channel_id;
      reason := format('set aside, for it cannot be delivered: %s', left(reason, 1000));
      outcome := fairqueue.fq_quarantine(p_queue, r.id::bigint, r.row::tid, reason::text);
      return next;
    end if;
  end loop;
  begin
    perform fairqueue.fq_reclaim(p_queue, 1000::integer);
    perform fairqueue.fq_promote(p_queue, 1000::integer, p_now);
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      -- The search goes on. If it finds nothing, the dequeue that is tried again fails with this error.
      null;
  end;
end
$$;
