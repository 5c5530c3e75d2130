-- fq_reclaim: take up to p_limit messages back whose lease has expired, and delete expired leases that hold nothing
-- more. Returns how many messages.
-- Guarantees: a message keeps its place in its channel, and its attempt counts. After max_attempts it becomes a dead
-- letter; if it cannot become one, it goes back, and a consumer ends it; if it cannot go back, it is set aside. A
-- message that was cancelled is deleted. Slots are freed by signals. A message that a completing transaction has locked
-- is passed by.
-- Locks: leases for update skip locked (a dequeue has its own lease locked for key share), messages for update skip
-- locked. Never waits.
-- Index: fq_lease_expires_ix, fq_message_lease_ix. Errors: none.
create function fairqueue.fq_reclaim(p_queue text, p_limit integer)
returns integer
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_leases bigint[];
  v_consumers text[];
  v_taken integer;
  v_after_at bigint := -1;
  v_after_id bigint := -1;
  v_ids bigint[];
  v_rows tid[];
  v_dead_ids bigint[];
  v_dead_rows tid[];
  v_dead_reasons text[];
  v_reasons text[];
  m record;
begin
  -- Leases whose messages are all locked by completing transactions must not hide the leases behind them: go on until a
  -- message is taken.
  for v_pass in 1..100 loop
    select array_agg(l.id), array_agg(l.consumer), max(l.expires_at),
      (array_agg(l.id order by l.expires_at desc, l.id desc))[1]
    into v_leases, v_consumers, v_after_at, v_after_id
    from (
      select e.id, e.consumer, e.expires_at
      from fairqueue.fq_lease e
      where e.queue = p_queue
        and e.expires_at <= v_now
        and (e.expires_at, e.id) > (v_after_at, v_after_id)
      order by e.queue, e.expires_at, e.id
      limit 100
      for update skip locked
    ) l;
    if v_leases is null then
      return 0;
    end if;

    -- A new statement: the dequeues that had these leases locked have committed, so their messages are seen.
    select
      count(*),
      array_agg(x.id) filter (where not x.exhausted),
      array_agg(x.row) filter (where not x.exhausted),
      array_agg(x.id) filter (where x.exhausted),
      array_agg(x.row) filter (where x.exhausted),
      array_agg(
        format(
          'the lease of consumer %s expired at attempt %s of %s', left(x.consumer, 512), x.attempts, x.max_attempts
        )
      ) filter (where x.exhausted)
    into v_taken, v_ids, v_rows, v_dead_ids, v_dead_rows, v_dead_reasons
    from (
      select m.ctid as row, m.id, m.attempts, m.max_attempts, m.attempts >= m.max_attempts as exhausted, l.consumer
      from unnest(v_leases, v_consumers) l(id, consumer)
      cross join lateral (
        select y.ctid, y.id, y.attempts, y.max_attempts
        from fairqueue.fq_message y
        where y.lease_id = l.id
        for update skip locked
      ) m
      limit p_limit
    ) x;
    begin
      perform fairqueue.fq_return_messages(
        p_queue, v_ids, v_rows, null::bigint[], null::text[], 0::integer, 'expired'::text
      );
      perform fairqueue.fq_bury_messages(p_queue, v_dead_ids, v_dead_rows, v_dead_reasons, null::text[]);
    exception
      when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
        -- Every dequeue of the queue would fail: take the messages back one by one.
        v_reasons := array_fill(null::text, array[coalesce(cardinality(v_ids), 0)]) || v_dead_reasons;
        for m in
          select u.*
          from unnest(v_ids || v_dead_ids, v_rows || v_dead_rows, v_reasons) u(id, row, reason)
        loop
          begin
            perform fairqueue.fq_bury_messages(
              p_queue, array[m.id]::bigint[], array[m.row]::tid[], array[m.reason]::text[], null::text[]
            )
            where m.reason is not null;
          exception
            -- A dead letter has its id, since a sequence was set back, or no letter can hold it.
            when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
              null;
          end;
          begin
            perform fairqueue.fq_return_messages(
              p_queue, array[m.id]::bigint[], array[m.row]::tid[], null::bigint[], null::text[], 0::integer,
              'expired'::text
            );
          exception
            when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
              perform fairqueue.fq_set_message_aside(
                p_queue, m.id::bigint, m.row::tid,
                format('set aside, for its lease cannot be taken back: %s', left(sqlerrm, 1000))::text
              );
          end;
        end loop;
    end;

    delete from fairqueue.fq_lease l
    using unnest(v_leases) u(id)
    where l.id = u.id
      and not exists (
        select
        from fairqueue.fq_message m
        where m.lease_id = l.id
      );
    if v_taken > 0 then
      return v_taken;
    end if;
  end loop;
  return 0;
end
$$;
