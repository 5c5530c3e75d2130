-- fq_keep_history: the housekeeping of the history: make the partitions of today and the next p_ahead days (UTC), drop
-- those that are too old.
-- Guarantees: one at a time: while another is at it, nothing is done and no row comes back. All or nothing with the
-- caller's transaction, so that the caller may die. Attempts that the default partition took move to their day. A
-- partition goes when its last moment is older than the longest retention of a queue that has one or records its
-- history (30 days where none is set). Rows: the partition and what was done: 'made', 'dropped', or 'emptied' and
-- 'busy': a table was in use for longer than a tenth of a second, so that the next call drops or makes it.
-- A day whose name fq_history_pYYYYMMDD is taken by something else is made with a number behind it.
-- What is taken away is noted in fq_pruned_history in the same transaction, for readers that had not come so far.
-- A day belongs to the owner of the history, whichever role calls this.
-- Locks: to make: the history share update exclusive, which hinders no verb, and the default partition access
-- exclusive, which no verb needs while days are made ahead. Where today or a day before it is made, the history share
-- row exclusive: verbs that record wait for the commit. To drop: the history access exclusive. All till the commit, so
-- commit at once; waits for a tenth of a second at most.
-- Index: none; reads the default partition, which is empty as a rule.
-- Errors: QF001 bad number of days, QF003 wrong isolation level, 42501 where the functions have another owner than the
-- history.
create function fairqueue.fq_keep_history(p_ahead integer default 7)
returns table (partition text, action text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  c_day constant bigint := 86400000000;
  c_bounds constant text := 'fq_bounds';
  v_now bigint := fairqueue.fq_now();
  v_today bigint := v_now / c_day;
  v_history oid;
  v_default oid;
  v_schema text;
  v_owner name;
  v_retention bigint;
  v_day bigint;
  v_days bigint[];
  v_made text[];
  v_columns text;
  v_note text;
begin
  if p_ahead is null or p_ahead not between 0 and 366 then
    raise exception 'fq_keep_history has % days ahead', p_ahead
      using errcode = 'QF001', hint = 'make partitions for 0 to 366 days ahead';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_keep_history runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003',
        hint = 'run it in a READ COMMITTED transaction of its own: it moves what was committed until the tables '
          'were locked';
  end if;
  select c.oid, n.nspname, pg_get_userbyid(c.relowner), p.partdefid into v_history, v_schema, v_owner, v_default
  from pg_type t
  join pg_class c on c.oid = t.typrelid
  join pg_namespace n on n.oid = c.relnamespace
  join pg_partitioned_table p on p.partrelid = c.oid
  where t.oid = pg_typeof(null::fairqueue.fq_history);
  begin
    insert into fairqueue.fq_gate (queue, part)
    select '', 0
    where not exists (
      select
      from fairqueue.fq_gate g
      where g.queue = ''
    )
    on conflict (queue, part) do nothing;
  exception
    when lock_not_available then
      return;
  end;
  perform
  from fairqueue.fq_gate g
  where g.queue = ''
  for update skip locked;
  if not found then
    return;
  end if;
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
    where not exists (
        select
        from pg_class c
        join pg_namespace a on a.oid = c.relnamespace
        where a.nspname = v_schema
          and c.relname = s.name
      )
      and not exists (
        select
        from pg_type t
        join pg_namespace a on a.oid = t.typnamespace
        where a.nspname = v_schema
          and t.typname = s.name
      )
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
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into v_columns
    from pg_attribute a
    where a.attrelid = v_history
      and a.attnum > 0
      and a.attgenerated = ''
      and not a.attisdropped;
    begin
      -- Rows in the default partition are moved before it is locked, and those that came meanwhile after.
      for i in 1..cardinality(v_days) loop
        partition := v_made[i];
        -- With its indexes and its bounds, so that it is neither indexed nor read under the locks.
        execute format(
          'create table %I.%I (like %s including constraints including generated including storage including indexes,'
          ' constraint %I check (finished_at >= %s and finished_at < %s))',
          v_schema, partition, v_history::regclass, c_bounds, v_days[i] * c_day, (v_days[i] + 1) * c_day
        );
        execute format('alter table %I.%I replica identity full', v_schema, partition);
        if v_owner <> current_user then
          begin
            execute format('alter table %I.%I owner to %I', v_schema, partition, v_owner);
          exception when insufficient_privilege then
            -- A role that has the owner's rights and cannot become the owner: it keeps the day.
            null;
          end;
        end if;
      end loop;
      for v_pass in 1..2 loop
        if v_pass = 2 then
          -- A verb that has chosen the default partition for a row of today would fail when today has got its own: it
          -- must choose after.
          if v_days[1] <= v_today then
            execute format('lock table only %s in share row exclusive mode', v_history::regclass);
          end if;
          execute format('lock table %s in access exclusive mode', v_default::regclass);
        end if;
        for i in 1..cardinality(v_days) loop
          execute format(
            'with moved as (delete from %s where finished_at >= %s and finished_at < %s returning %s)'
            ' insert into %I.%I (%s) select %s from moved',
            v_default::regclass, v_days[i] * c_day, (v_days[i] + 1) * c_day, v_columns,
            v_schema, v_made[i], v_columns, v_columns
          );
        end loop;
      end loop;
      for i in 1..cardinality(v_days) loop
        execute format(
          'alter table %s attach partition %I.%I for values from (%s) to (%s)',
          v_history::regclass, v_schema, v_made[i], v_days[i] * c_day, (v_days[i] + 1) * c_day
        );
        execute format('alter table %I.%I drop constraint %I', v_schema, v_made[i], c_bounds);
      end loop;
      action := 'made';
    exception when lock_not_available then
      action := 'busy';
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
    v_note := format(
      'insert into %I.fq_pruned_history (finished_from, finished_until, recorded_xid, history_id, pruned_at)'
      ' select %s, %s, h.recorded_xid, h.id, %s from %I.%I h order by h.recorded_xid desc, h.id desc limit 1',
      v_schema, v_day * c_day, (v_day + 1) * c_day, v_now, v_schema, partition
    );
    -- Where a transaction uses the history for long, the space can be freed by locking only the old partition.
    foreach action in array array['dropped', 'emptied', 'busy'] loop
      exit when action = 'busy';
      begin
        -- The locks of the drop, in its order: nothing can be added after the last attempt was noted.
        if action = 'dropped' then
          execute format('lock table only %s in access exclusive mode', v_history::regclass);
        end if;
        execute format('lock table %I.%I in access exclusive mode', v_schema, partition);
        execute v_note;
        execute format(
          '%s table %I.%I', case action when 'dropped' then 'drop' else 'truncate' end, v_schema, partition
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
