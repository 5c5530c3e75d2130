-- fq_forget_channels: delete up to p_limit marked channels that are still idle, once no transaction runs any more that
-- may not have seen the marks. The first call, in a later transaction than fq_mark_idle_channels, begins a round, which
-- later calls of anybody go on with. forgotten: channels deleted; more: there may be others; waiting: the transactions
-- that the round waits for.
-- Guarantees: no message is lost. A transaction that began after the marks were committed takes the mark of a channel
-- that it uses back, under the lock of the state row; those that began before have ended, and what they added is seen.
-- A channel that has anything, or was paused or configured, loses the mark. Later marks are left to the next round.
-- Locks: as fq_lock_round, then state rows for update, skip locked. Index: fq_channel_state_forget_ix, those of
-- fq_busy_channels, fq_dead_letter_channel_ix, fq_channel_pkey. Errors: QF001 bad limit; QF003 not READ COMMITTED.
create function fairqueue.fq_forget_channels(
  p_limit integer, out forgotten bigint, out more boolean, out waiting text[]
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_snapshot pg_snapshot;
  v_before pg_snapshot;
  v_running text[];
  v_open text[];
  v_queues text[];
  v_rows tid[];
  v_ids bigint[];
  v_deleted bigint[];
begin
  perform fairqueue.fq_check_number('fq_forget_channels has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint);
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_forget_channels runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction of its own';
  end if;
  forgotten := 0;
  more := false;
  waiting := '{}';
  if not exists (select from fairqueue.fq_channel_state s where s.forget_xid is not null) then
    return;
  end if;
  -- The snapshot comes first: a transaction that is not named here and has not ended began after it.
  v_snapshot := pg_current_snapshot();
  v_running := array(
    select l.virtualtransaction
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'virtualxid'
      and l.granted
      and l.mode = 'ExclusiveLock'
      and l.pid <> pg_backend_pid()
      and (a.datname is null or a.datname = current_database())
  ) || array(
    select 'prepared ' || x.transaction::text
    from pg_prepared_xacts x
    where x.database = current_database()
  );
  if not fairqueue.fq_lock_round('forget'::text) then
    return;
  end if;
  -- The row may come from a dump of a server with greater transaction ids, for which marks of this server would look
  -- older than they are. Then it names a transaction of this server that its own xmin does not know.
  select r.snapshot, f.waiting into v_before, waiting
  from fairqueue.fq_round f
  cross join lateral (select case when f.duty = 'forget' then f.snapshot::pg_snapshot end as snapshot) r
  where f.duty = 'forget'
    and pg_snapshot_xmax(r.snapshot) <= pg_snapshot_xmax(pg_current_snapshot())
    and age(f.xmin) <= age(pg_snapshot_xmax(r.snapshot)::xid);
  if found then
    v_open := waiting;
    waiting := array(select unnest(v_open) intersect select unnest(v_running));
    -- A transaction that was not prepared when the round began may have been meanwhile, under another name.
    if waiting = '{}' and exists (select from unnest(v_open) w(name) where w.name not like 'prepared %') then
      waiting := array(select r.name from unnest(v_running) r(name) where r.name like 'prepared %');
    end if;
  else
    v_before := v_snapshot;
    waiting := v_running;
  end if;
  v_open := waiting;
  update fairqueue.fq_round f
  set snapshot = v_before::text,
    waiting = v_open
  where f.duty = 'forget';
  if waiting <> '{}' then
    return;
  end if;

  select array_agg(l.row), array_agg(l.channel_id), array_agg(distinct l.queue), count(*) = p_limit
  into v_rows, v_ids, v_queues, more
  from (
    select s.ctid as row, s.channel_id, s.queue
    from fairqueue.fq_channel_state s
    where s.forget_xid is not null
      and pg_visible_in_snapshot(s.forget_xid, v_before)
    order by s.queue, s.channel_id
    limit p_limit
    for update skip locked
  ) l;
  -- A new statement, whose snapshot is younger than the locks.
  v_deleted := array(
    select s.channel_id
    from fairqueue.fq_channel_state s
    where s.channel_id = any (v_ids)
      and pg_visible_in_snapshot(s.forget_xid, v_before)
      and s.paused_at is null
      and not s.configured
      and s.current_concurrency = 0
      and s.channel_id not in (
        select b.channel_id
        from unnest(v_queues) q(name)
        cross join lateral fairqueue.fq_busy_channels(q.name, null::text[], null::integer, null::integer) b
      )
      and not exists (select from fairqueue.fq_dead_letter d where d.channel_id = s.channel_id)
      and not exists (
        select
        from fairqueue.fq_message m
        where m.channel_id = s.channel_id
          and m.lease_id is null
      )
  );
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    forget_xid = null
  where s.ctid = any (v_rows)
    and s.channel_id <> all (v_deleted);
  delete from fairqueue.fq_channel_state s
  where s.ctid = any (v_rows)
    and s.channel_id = any (v_deleted);
  delete from fairqueue.fq_channel_plan o
  where o.channel_id = any (v_deleted);
  delete from fairqueue.fq_channel c
  where c.id = any (v_deleted);
  forgotten := cardinality(v_deleted);
  if not more then
    delete from fairqueue.fq_round f
    where f.duty = 'forget';
  end if;
end
$$;
