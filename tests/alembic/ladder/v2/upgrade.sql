-- Version 1 to 2, in one READ COMMITTED transaction.
--
-- It waits for vacuums first, in a lock that stops nothing else: autovacuum gives way to a lock request that waits for
-- longer than deadlock_timeout, as no try below does, and does not begin behind it.
-- Then it locks the table that changes, ACCESS EXCLUSIVE: from here to the commit nobody uses the queues. It tries for
-- 50 ms, and again after a pause: the server looks for deadlocks after a second, so that nobody else's transaction
-- falls victim to the upgrade, and none waits long behind it for one that stays open.
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
        hint = 'wait for its end, or end it (pg_stat_progress_vacuum names it), then upgrade again';
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
            hint = 'end the transactions that have used the queues (pg_stat_activity names them), then upgrade again';
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  perform set_config('lock_timeout', v_timeout, true);
end
$$;

alter table fairqueue.fq_message
  add column note text;
create index fq_message_note_ix on fairqueue.fq_message (note) where note is not null;

-- Rows in consumers' hands move.
update fairqueue.fq_message m
set note = 'out'
where m.lease_id is not null;
