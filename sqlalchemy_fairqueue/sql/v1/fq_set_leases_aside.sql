-- fq_set_leases_aside: take back up to 1,000 messages of a queue's expired leases. If that fails for all together, it
-- is done one by one, and messages with which it fails are set aside: a row for each, as fq_set_aside returns them. One
-- by one messages without an attempt left go back, too, and a consumer ends them.
-- Locks: as fq_reclaim and fq_set_message_aside, all skip locked: it waits for none.
-- Index: fq_lease_expires_ix, fq_message_lease_ix. Errors: none of the rows'.
create function fairqueue.fq_set_leases_aside(p_queue text, p_now bigint)
returns table (message_id bigint, channel_id bigint, outcome text, reason text)
language plpgsql
as $$
declare
  v_row tid;
begin
  begin
    perform fairqueue.fq_reclaim(p_queue, 1000::integer);
    return;
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;
  for v_row, message_id, channel_id in
    select m.ctid, m.id, m.channel_id
    from (
      select e.id
      from fairqueue.fq_lease e
      where e.queue = p_queue
        and e.expires_at <= p_now
      order by e.queue, e.expires_at, e.id
    ) l
    join fairqueue.fq_message m on m.lease_id = l.id
    limit 1000
    for update of m skip locked
  loop
    begin
      perform fairqueue.fq_return_messages(
        p_queue, array[message_id]::bigint[], array[v_row]::tid[], null::bigint[], null::text[], 0::integer,
        'expired'::text
      );
    exception
      when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
        reason := format('set aside, for its lease cannot be taken back: %s', left(sqlerrm, 1000));
        outcome := fairqueue.fq_set_message_aside(p_queue, message_id::bigint, v_row, reason::text);
        if outcome is not null then
          return next;
        end if;
    end;
  end loop;
end
$$;
