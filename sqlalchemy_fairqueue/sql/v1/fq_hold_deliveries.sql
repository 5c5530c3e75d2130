-- fq_hold_deliveries: lock the messages of the given deliveries that are still their holder's. Used by release, retry and bury.
-- Guarantees: a returned message carries the delivery's token (id, lease id, deliveries) and stays so until the transaction ends.
-- Locks: the messages, for update, in the order of their ids; waits for whoever has one locked.
-- Index: none while a row is where the delivery found it; else fq_message_pkey. Errors: 40001.
create function fairqueue.fq_hold_deliveries(p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[])
returns table (message_id bigint, row_id tid, exhausted boolean)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_rows tid[] := p_rows;
  v_held bigint[] := '{}';
begin
  for v_pass in 1..2 loop
    for message_id, row_id, exhausted in
      select m.id, m.ctid, m.attempts >= m.max_attempts
      from (
        select u.*
        from unnest(p_ids, v_rows, p_lease_ids, p_deliveries) u(id, row, lease_id, deliveries)
        where u.id <> all (v_held)
        order by u.id
      ) u
      join fairqueue.fq_message m on m.ctid = u.row and m.id = u.id and m.lease_id = u.lease_id and m.deliveries = u.deliveries
      for update of m
    loop
      v_held := v_held || message_id;
      return next;
    end loop;
    exit when cardinality(v_held) = cardinality(p_ids) or v_pass = 2;

    select array_agg(m.ctid order by u.ord) into v_rows
    from unnest(p_ids) with ordinality u(id, ord)
    left join fairqueue.fq_message m on m.id = u.id;
  end loop;
end
$$;
