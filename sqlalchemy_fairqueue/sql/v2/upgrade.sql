-- Version 1 to 2, in one transaction. It locks the tables of messages against writers, for the triggers that are made
-- at the end, in tries of 50 ms, so that no queue of transactions forms behind a long one and no deadlock is found at
-- the cost of another. The rest of the migration, which makes a few functions, holds the locks.
do $$
declare
  v_timeout text := current_setting('lock_timeout');
  v_tries integer := 0;
begin
  loop
    begin
      set local lock_timeout = '50ms';
      lock table fairqueue.fq_message, fairqueue.fq_dead_letter, fairqueue.fq_quarantine in share row exclusive mode;
      exit;
    exception when lock_not_available then
      v_tries := v_tries + 1;
      if v_tries = 300 then
        raise exception 'the tables of messages were in use at each of % tries', v_tries
          using errcode = '55P03',
            hint = 'end the transactions that have written messages (pg_stat_activity names them), then upgrade again';
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  perform set_config('lock_timeout', v_timeout, true);
end
$$;
