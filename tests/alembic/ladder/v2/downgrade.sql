-- Version 2 to 1, in one transaction. Notes are lost. The table is locked as by the upgrade.
do $$
declare
  v_timeout text := current_setting('lock_timeout');
  v_tries integer := 0;
begin
  begin
    set local lock_timeout = '60s';
    lock table fairqueue.fq_message in share update exclusive mode;
  exception when lock_not_available then
    raise exception 'a table of the queues is being vacuumed, analyzed or indexed, for a minute already'
      using errcode = '55P03',
        hint = 'wait for its end, or end it (pg_stat_progress_vacuum names it), then downgrade again';
  end;
  loop
    begin
      set local lock_timeout = '50ms';
      lock table fairqueue.fq_message in access exclusive mode;
      exit;
    exception when lock_not_available then
      v_tries := v_tries + 1;
      if v_tries = 300 then
        raise exception 'the tables of the queues were in use at each of % tries', v_tries
          using errcode = '55P03',
            hint = 'end the transactions that have used the queues (pg_stat_activity names them), then downgrade again';
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  perform set_config('lock_timeout', v_timeout, true);
end
$$;

-- Rows in consumers' hands move. The index goes with its column.
update fairqueue.fq_message m
set note = null
where m.lease_id is not null;
alter table fairqueue.fq_message
  drop column note;
