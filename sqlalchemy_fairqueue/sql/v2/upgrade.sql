-- Version 1 to 2, in one READ COMMITTED transaction. It waits for vacuums first, in a lock that stops nothing else:
-- autovacuum gives way to a request that waits for longer than deadlock_timeout, as no try below does. Then it locks
-- the tables of messages against writers, for the triggers that are made at the end, in tries of 50 ms, so that no
-- queue of transactions forms behind a long one and no deadlock is found at the cost of another. The rest of the
-- migration, which makes a few functions, holds the locks.
do $$
declare
  v_timeout text := current_setting('lock_timeout');
  v_tries integer := 0;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'the upgrade runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003',
        hint = 'run the migration in a READ COMMITTED transaction: its statements must see what others have committed';
  end if;
  begin
    set local lock_timeout = '60s';
    lock table fairqueue.fq_message, fairqueue.fq_dead_letter, fairqueue.fq_quarantine
      in share update exclusive mode;
  exception when lock_not_available then
    raise exception 'a table of the queues is being vacuumed, analyzed or indexed, for a minute already'
      using errcode = '55P03',
        hint = 'wait for its end, or end it (pg_stat_progress_vacuum names it), then upgrade again';
  end;
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
