-- fq_keep_history: do the housekeeping of the history: make the partitions of today and the next p_ahead days (UTC),
-- drop those older than the longest retention (30 days if none is set). Returns each partition with 'made', 'dropped',
-- 'emptied' (the history was in use for longer than a tenth of a second) or 'busy' (a table was; the next call goes on).
-- Guarantees: one call works at a time; another one does nothing. All or nothing with the caller's transaction. Attempts
-- in the default partition move to their day. If something else has the name of a day, a number is added.
-- fq_pruned_history notes the last attempt that is taken away. A day belongs to the owner of the history.
-- Locks: to make days: the history share update exclusive, its default partition access exclusive; for today or before:
-- the history share row exclusive, so that verbs that record wait. To drop: the history access exclusive. Till the
-- commit; waits for a tenth of a second. Index: fq_history's on (recorded_xid, id). Errors: QF001, QF003; 42501 another
-- owner than the history's.
create function fairqueue.fq_keep_history(p_ahead integer default 7)
returns table (partition text, action text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
declare
  c_day constant bigint := 86400000000;
  v_now bigint := fairqueue.fq_now();
  v_today bigint := v_now / c_day;
  v_history regclass;
  v_schema regnamespace;
  v_retention bigint;
  v_days bigint[];
  v_made text[];
  v_day bigint;
begin
  perform fairqueue.fq_check_number('fq_keep_history has days ahead'::text, p_ahead::bigint, 0::bigint, 366::bigint);
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_keep_history runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003',
        hint = 'run it in a READ COMMITTED transaction of its own: it moves what was committed until the tables '
          'were locked';
  end if;
  select c.oid, c.relnamespace into v_history, v_schema
  from pg_type t
  join pg_class c on c.oid = t.typrelid
  where t.oid = pg_typeof(null::fairqueue.fq_history);
  begin
    if not fairqueue.fq_lock_round('history'::text) then
      return;
    end if;
  exception
    when lock_not_available then
      return;
  end;
  select coalesce(max(coalesce(q.history_retention, 30 * c_day)), 30 * c_day) into v_retention
  from fairqueue.fq_queue q
  where q.history
    or q.history_retention is not null;

  -- What is too old in the default partition goes at once; the days of the rest are made like those ahead.
  with gone as (
    delete from fairqueue.fq_history_default h
    where h.finished_at < (v_now - v_retention) / c_day * c_day
    returning h.finished_at / c_day as day, h.recorded_xid, h.id
  )
  insert into fairqueue.fq_pruned_history (finished_from, finished_until, recorded_xid, history_id, pruned_at)
  select distinct on (g.day) g.day * c_day, (g.day + 1) * c_day, g.recorded_xid, g.id, v_now
  from gone g
  order by g.day, g.recorded_xid desc, g.id desc;
  -- Where something else has the name of a day, the day gets a number behind it.
  select array_agg(d.day order by d.day), array_agg(f.name order by d.day) into v_days, v_made
  from (
    select v_today + i.i as day
    from generate_series(0, p_ahead) i
    union
    select h.finished_at / c_day
    from fairqueue.fq_history_default h
    where h.finished_at < (v_today + p_ahead + 1) * c_day
  ) d
  cross join lateral (
    select 'fq_history_p' || to_char(to_timestamp(d.day * 86400), 'YYYYMMDD') as name
  ) n
  cross join lateral (
    select s.name
    from generate_series(0, 999) i
    cross join lateral (
      select n.name || case when i.i > 0 then '_' || i.i else '' end as name
    ) s
    where to_regclass(format('%s.%I', v_schema, s.name)) is null
      and to_regtype(format('%s.%I', v_schema, s.name)) is null
    order by i.i
    limit 1
  ) f
  where not exists (
    select
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = v_history
      and left(c.relname, 20) = n.name
  );

  if v_days is not null then
    action := case
      when fairqueue.fq_make_history_days(v_history, v_days, v_made) then 'made'
      else 'busy'
    end;
    foreach partition in array v_made loop
      return next;
    end loop;
  end if;

  for partition, v_day in
    select c.relname, to_date(substr(c.relname, 13, 8), 'YYYYMMDD') - date '1970-01-01'
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = v_history
      and c.relname ~ '^fq_history_p[0-9]{8}'
      and c.relname < 'fq_history_p' || to_char(to_timestamp((v_now - v_retention) / 1000000), 'YYYYMMDD')
    order by c.relname
  loop
    -- While a transaction uses the history for long, locking only the old partition can still free its space.
    foreach action in array array['dropped', 'emptied', 'busy'] loop
      exit when action = 'busy';
      begin
        -- The locks of the drop, in its order: nothing can be added after the last attempt was noted.
        if action = 'dropped' then
          execute format('lock table only %s in access exclusive mode', v_history);
        end if;
        execute format('lock table %s.%I in access exclusive mode', v_schema, partition);
        execute format(
          'insert into %s.fq_pruned_history (finished_from, finished_until, recorded_xid, history_id, pruned_at)'
          ' select %s, %s, h.recorded_xid, h.id, %s from %s.%I h order by h.recorded_xid desc, h.id desc limit 1',
          v_schema, v_day * c_day, (v_day + 1) * c_day, v_now, v_schema, partition
        );
        execute format(
          '%s table %s.%I', case action when 'dropped' then 'drop' else 'truncate' end, v_schema, partition
        );
        exit;
      exception when lock_not_available then
        null;
      end;
    end loop;
    return next;
  end loop;
end
$$;
