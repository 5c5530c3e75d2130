-- fq_drop_history_days: drop the partitions of the history whose day ended before the day of p_before (microseconds
-- since 1970). Returns each partition with 'dropped'; 'emptied': the history was in use for longer than a tenth of a
-- second; or 'busy': the partition itself was, so it stays as it is.
-- Guarantees: fq_pruned_history notes the last attempt that is taken away.
-- Locks: as said by fq_keep_history, its only caller. Index: fq_history's on (recorded_xid, id). Errors: 42501 as
-- there.
create function fairqueue.fq_drop_history_days(p_history regclass, p_before bigint)
returns table (partition text, action text)
language plpgsql
as $$
declare
  c_day constant bigint := 86400000000;
  v_schema regnamespace := (select c.relnamespace from pg_class c where c.oid = p_history);
  v_day bigint;
  v_note text;
begin
  for partition, v_day in
    select c.relname, to_date(substr(c.relname, 13, 8), 'YYYYMMDD') - date '1970-01-01'
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = p_history
      and c.relname ~ '^fq_history_p[0-9]{8}'
      and c.relname < 'fq_history_p' || to_char(to_timestamp(p_before / 1000000), 'YYYYMMDD')
    order by c.relname
  loop
    v_note := format(
      'insert into %s.fq_pruned_history (finished_from, finished_until, recorded_xid, history_id, pruned_at)'
      ' select %s, %s, h.recorded_xid, h.id, %s from %s.%I h order by h.recorded_xid desc, h.id desc limit 1',
      v_schema, v_day * c_day, (v_day + 1) * c_day, fairqueue.fq_now(), v_schema, partition
    );
    -- While a transaction uses the history for long, locking only the old partition can still free its space.
    foreach action in array array['dropped', 'emptied', 'busy'] loop
      exit when action = 'busy';
      begin
        -- The locks of the drop, in its order: nothing can be added after the last attempt was noted.
        if action = 'dropped' then
          execute format('lock table only %s in access exclusive mode', p_history);
        end if;
        execute format('lock table %s.%I in access exclusive mode', v_schema, partition);
        execute v_note;
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
