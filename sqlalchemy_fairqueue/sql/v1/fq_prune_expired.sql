-- fq_prune_expired: delete rows whose time is over, up to p_limit of each kind, the oldest first: keys after their
-- period; results; waits for results, left by a process that died; requests to stop after an hour; audit rows after 90
-- days; sizes after eight; after seven groups that are finished, records of slots, and schedules from code since they
-- were due, as no worker has them in its code any more; of each queue dead letters after the retention of their kind,
-- or else of the queue. Returns how many of the kind of which it deleted the most, the names of those schedules, and
-- the number of dead letters by queue (null: none).
-- Guarantees: a key is free when its period is over, whether or not its row is deleted. An open group stays, however
-- old. Several calls at once wait for none and delete nothing twice. Locks: the rows, skip locked.
-- Index: fq_key_period_ends_ix, fq_result_expires_ix, fq_group_due_ix, fq_audit_pkey, fq_size_pkey,
-- fq_dead_letter_died_ix; others are few and read whole. Errors: QF001 bad limit.
create function fairqueue.fq_prune_expired(p_limit integer)
returns table (deleted bigint, schedules text[], dead_letters jsonb)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_week bigint := v_now - 604800000000;
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_table text;
  v_time text;
  v_before bigint;
  v_rows bigint;
begin
  perform fairqueue.fq_check_number('fq_prune_expired has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint);
  for v_table, v_time, v_before in
    values ('fq_key_period', 'expires_at', v_now),
      ('fq_result', 'expires_at', v_now),
      ('fq_result_wait', 'waiting_until', v_now),
      ('fq_stop_request', 'requested_at', v_now - 3600000000),
      ('fq_audit', 'at', v_now - 7776000000000),
      ('fq_size', 'at', v_now - 691200000000),
      ('fq_group', 'finished_at', v_week),
      ('fq_schedule_slot', 'ran_at', v_week)
  loop
    execute format(
      'delete from %s.%s t where t.ctid = any (array('
      '  select x.ctid from %s.%s x where x.%s < %s order by x.%s limit %s for update skip locked'
      '))',
      v_schema, v_table, v_schema, v_table, v_time, v_before, v_time, p_limit
    );
    get diagnostics v_rows = row_count;
    deleted := greatest(deleted, v_rows);
  end loop;
  with vanished as (
    delete from fairqueue.fq_schedule t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_schedule x
        where x.in_code and x.due_at < v_week order by x.due_at limit p_limit for update skip locked
      ))
    returning format('%s of channel %s of queue %s', t.name, t.channel, t.queue) as name
  )
  select array(select v.name from vanished v) into schedules;
  with overdue as (
    delete from fairqueue.fq_dead_letter t
    where t.ctid = any (array(
        select x.row
        from fairqueue.fq_queue q
        cross join lateral (select coalesce(q.dead_letter_retention_by_kind, '{}') as by_kind) k
        cross join lateral (
          select d.ctid as row
          from fairqueue.fq_dead_letter d
          where d.queue = q.name
            -- A kind may be kept for longer, and its letters are then read again by each call.
            and d.died_at < v_now - (
              select least(q.dead_letter_retention, min(e.value::bigint))
              from jsonb_each_text(k.by_kind) e
            )
            and d.died_at < v_now - coalesce((k.by_kind ->> d.kind)::bigint, q.dead_letter_retention)
          order by d.queue, d.died_at
          limit p_limit
          for update skip locked
        ) x
      ))
    returning t.queue
  )
  select jsonb_object_agg(o.queue, o.letters), greatest(deleted, cardinality(schedules), max(o.letters))
  into dead_letters, deleted
  from (select v.queue, count(*) as letters from overdue v group by v.queue) o;
  return next;
end
$$;
