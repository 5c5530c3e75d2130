-- fq_reclaim: take back up to p_limit messages whose lease has expired, and drop expired leases that hold nothing more.
-- Guarantees: a message goes back into its own channel, where it stood, its attempt counted; after max_attempts it is a
-- dead letter; one that was cancelled is gone; its slot is freed by a signal. A message that a completing transaction
-- has locked is passed by. One that is out of attempts and cannot become a letter goes back too, for a
-- consumer to end it.
-- Locks: leases for update skip locked (dequeue holds its own for key share), messages for update skip locked. Never
-- waits.
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
begin
  -- Leases whose messages are all in completing transactions must not hide the others behind them: go on until one gave
  -- something.
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

    -- A new statement: a dequeue that held one of these leases has committed, and its messages are seen.
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
      join fairqueue.fq_message m on m.lease_id = l.id
      limit p_limit
      for update of m skip locked
    ) x;
    perform fairqueue.fq_return_messages(
      p_queue, v_ids, v_rows, null::bigint[], null::text[], 0::integer, 'expired'::text
    );
    if v_dead_ids is not null then
      begin
        perform fairqueue.fq_bury_messages(p_queue, v_dead_ids, v_dead_rows, v_dead_reasons, null::text[]);
      exception
        -- A letter has the id of one of them, since a sequence was set back, or no letter can hold one. Every dequeue of
        -- the queue would fail with this one.
        when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
          for v_i in 1..cardinality(v_dead_ids) loop
            begin
              perform fairqueue.fq_bury_messages(
                p_queue, v_dead_ids[v_i:v_i]::bigint[], v_dead_rows[v_i:v_i]::tid[], v_dead_reasons[v_i:v_i]::text[],
                null::text[]
              );
            exception
              when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
                perform fairqueue.fq_return_messages(
                  p_queue, v_dead_ids[v_i:v_i]::bigint[], v_dead_rows[v_i:v_i]::tid[], null::bigint[], null::text[],
                  0::integer, 'expired'::text
                );
            end;
          end loop;
      end;
    end if;

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
