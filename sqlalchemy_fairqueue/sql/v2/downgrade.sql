-- Version 2 to 1, in one READ COMMITTED transaction. Schedules that calls made and groups that are open would be lost:
-- both are refused. Schedules from code, which their workers make again, the record of slots, finished groups, kept
-- results, requests to stop and periods of keys are dropped: a key is free then when its message ends. It waits for
-- vacuums first, as the upgrade does. Then it locks their tables and those of messages, whose triggers are dropped, in
-- tries of 50 ms, so that no deadlock is found at the cost of another transaction. The rest of the migration holds
-- these locks.
do $$
declare
  v_timeout text := current_setting('lock_timeout');
  v_tries integer := 0;
  v_made bigint;
  v_open bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'the downgrade runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003',
        hint = 'run the migration in a READ COMMITTED transaction: its statements must see what others have committed';
  end if;
  begin
    set local lock_timeout = '60s';
    lock table fairqueue.fq_schedule, fairqueue.fq_schedule_slot, fairqueue.fq_group, fairqueue.fq_group_followup,
      fairqueue.fq_group_note, fairqueue.fq_group_fold, fairqueue.fq_result, fairqueue.fq_result_wait,
      fairqueue.fq_key_period, fairqueue.fq_stop_request, fairqueue.fq_message, fairqueue.fq_dead_letter,
      fairqueue.fq_quarantine
      in share update exclusive mode;
  exception when lock_not_available then
    raise exception 'a table of the queues is being vacuumed, analyzed or indexed, for a minute already'
      using errcode = '55P03',
        hint = 'wait for its end, or end it (pg_stat_progress_vacuum names it), then downgrade again';
  end;
  loop
    begin
      set local lock_timeout = '50ms';
      lock table fairqueue.fq_schedule, fairqueue.fq_schedule_slot, fairqueue.fq_group, fairqueue.fq_group_followup,
        fairqueue.fq_group_note, fairqueue.fq_group_fold, fairqueue.fq_result, fairqueue.fq_result_wait,
        fairqueue.fq_key_period, fairqueue.fq_stop_request, fairqueue.fq_message, fairqueue.fq_dead_letter,
        fairqueue.fq_quarantine
        in access exclusive mode;
      exit;
    exception when lock_not_available then
      v_tries := v_tries + 1;
      if v_tries = 300 then
        raise exception 'the tables of messages, groups, results, keys or schedules were in use at each of % tries',
          v_tries
          using errcode = '55P03',
            hint = 'end the transactions that have used them (pg_stat_activity names them), '
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
  select count(*) into v_open
  from fairqueue.fq_group g
  where num_nulls(g.finished_at) = 1;
  if v_open > 0 then
    raise exception 'version 1 cannot finish the % groups that are open', v_open
      using errcode = 'QF004',
        hint = 'let their members end, or delete the rows of the table fq_group in the same migration: then nothing '
          'follows them; until then older code runs on version 2 as well';
  end if;
  drop trigger fq_message_key_ended on fairqueue.fq_message;
  drop trigger fq_message_member_ended on fairqueue.fq_message;
  drop trigger fq_dead_letter_member_failed on fairqueue.fq_dead_letter;
  drop trigger fq_quarantine_member_failed on fairqueue.fq_quarantine;
end
$$;
