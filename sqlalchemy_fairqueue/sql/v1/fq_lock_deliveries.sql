-- fq_lock_deliveries: lock the messages of deliveries that are still their holder's, for fq_end_attempts.
-- Returns by message: row_id: the place of its row; ordinal: the position of the delivery in the arrays; exhausted: it
-- was the last attempt.
-- Guarantees: each is of p_queue, has the delivery's token (id, lease id, deliveries) without a null, and keeps it
-- until the transaction ends.
-- Locks: the messages, for update, in the order of their ids; waits for a transaction that has one locked.
-- Index: none while a row is where the delivery found it; else fq_message_pkey. Errors: 40001; QF007.
create function fairqueue.fq_lock_deliveries(
  p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_queue text
)
returns table (message_id bigint, row_id tid, ordinal bigint, exhausted boolean)
language plpgsql
security definer
as $$
declare
  v_rows tid[] := p_rows;
  v_held bigint[] := '{}';
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  for v_pass in 1..5 loop
    for message_id, row_id, ordinal, exhausted in
      select m.id, m.ctid, u.ord, m.attempts >= m.max_attempts
      from (
        select u.*
        from unnest(p_ids, v_rows, p_lease_ids, p_deliveries) with ordinality u(id, row, lease_id, deliveries, ord)
        where u.row is not null
          and u.lease_id is not null
        order by u.id
      ) u
      join fairqueue.fq_message m
        on m.ctid = u.row
        and m.id is not distinct from u.id
        and m.lease_id is not distinct from u.lease_id
        and m.deliveries = u.deliveries
      where (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
      for update of m
    loop
      v_held := v_held || message_id;
      return next;
    end loop;
    exit when cardinality(v_held) = cardinality(p_ids);

    -- A row is not where the delivery found it (the table was rewritten, or someone updated it): find it by id.
    select array_agg(m.ctid order by u.ord) into v_rows
    from unnest(p_ids, p_lease_ids, p_deliveries) with ordinality u(id, lease_id, deliveries, ord)
    left join lateral (
      select x.ctid
      from fairqueue.fq_message x
      where x.id = u.id
        and x.lease_id is not distinct from u.lease_id
        and x.deliveries = u.deliveries
        and u.lease_id is not null
        and x.id <> all (v_held)
      limit 1
    ) m on true;
    exit when num_nonnulls(variadic v_rows) = 0;
  end loop;
end
$$;
