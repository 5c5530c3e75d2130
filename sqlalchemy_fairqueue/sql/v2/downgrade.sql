-- Version 2 to 1, in one transaction. Schedules that calls made would be lost, and are refused; those from code, which
-- their workers make again, and the record of slots are dropped. Messages that schedules enqueued stay.
-- It locks the tables of the schedules, ACCESS EXCLUSIVE, in tries of 50 ms, so that no deadlock with a transaction
-- that uses them is found at the cost of that one. Nothing else of the queues is locked.
do $$
declare
  v_timeout text := current_setting('lock_timeout');
  v_tries integer := 0;
  v_made bigint;
begin
  loop
    begin
      set local lock_timeout = '50ms';
      lock table fairqueue.fq_schedule, fairqueue.fq_schedule_slot in access exclusive mode;
      exit;
    exception when lock_not_available then
      v_tries := v_tries + 1;
      if v_tries = 300 then
        raise exception 'the tables of the schedules were in use at each of % tries', v_tries
          using errcode = '55P03',
            hint = 'end the transactions that have used the schedules (pg_stat_activity names them), '
              'then downgrade again';
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  perform set_config('lock_timeout', v_timeout, true);
  select count(*) into v_made
  from fairqueue.fq_schedule s
  where not s.in_code;
  if v_made > 0 then
    raise exception 'version 1 cannot keep the % schedules that were made by calls', v_made
      using errcode = 'QF004',
        hint = 'remove them before, or delete the rows of the table fq_schedule in the same migration; '
          'until then older code runs on version 2 as well';
  end if;
end
$$;
