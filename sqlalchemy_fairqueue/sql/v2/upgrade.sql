-- Version 1 to 2, in one READ COMMITTED transaction. All but three statements are done at once, whatever the tables hold.
--
-- First for vacuums to end, in a lock that stops nothing else: autovacuum gives way to who waits for longer than deadlock_timeout, as no try below does,
-- and does not begin behind it.
-- Then the tables that change, ACCESS EXCLUSIVE: from here to the commit nobody uses the queues. They are locked in tries that wait
-- 50 ms a table, are given up whole and made again after a pause: the server looks for deadlocks after a second, so that nobody else's transaction
-- falls victim to the upgrade, and none waits long behind it for one that stays open. After 300 tries it fails, and nothing has changed.
-- Calls of version 1 that waited here go on as they were and do not count: a channel's backlog is off by as much until it runs empty or is configured.
do $$
declare
  v_timeout text := current_setting('lock_timeout');
  v_tries integer := 0;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'the upgrade runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run the migration in a READ COMMITTED transaction: it counts messages as they are when nobody else can add any';
  end if;
  begin
    set local lock_timeout = '60s';
    lock table fairqueue.fq_lease, fairqueue.fq_queue, fairqueue.fq_channel_state, fairqueue.fq_message, fairqueue.fq_signal
      in share update exclusive mode;
  exception when lock_not_available then
    raise exception 'a table of the queues is being vacuumed, analyzed or indexed, for a minute already'
      using errcode = '55P03', hint = 'wait for its end, or end it (pg_stat_progress_vacuum and pg_stat_progress_create_index name it), then upgrade again';
  end;
  loop
    begin
      set local lock_timeout = '50ms';
      lock table fairqueue.fq_lease, fairqueue.fq_queue, fairqueue.fq_channel_state, fairqueue.fq_message, fairqueue.fq_signal
        in access exclusive mode;
      exit;
    exception when lock_not_available then
      v_tries := v_tries + 1;
      if v_tries = 300 then
        raise exception 'the tables of the queues were in use at each of % tries', v_tries
          using errcode = '55P03', hint = 'end the open transactions that have used the queues (pg_stat_activity names them), then upgrade again';
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  perform set_config('lock_timeout', v_timeout, true);
end
$$;

-- At once: constant defaults, no table is rewritten.
alter table fairqueue.fq_queue
  add column has_policy boolean not null default true,
  add column global_max_concurrency integer,
  add column paused_at bigint,
  add column history boolean not null default false,
  add column history_retention bigint,
  add column max_backlog integer,
  add column drop_when_full boolean not null default false,
  add constraint fq_queue_limits_check check (global_max_concurrency >= 1 and history_retention >= 1 and max_backlog >= 1);
alter table fairqueue.fq_channel_state
  add column paused_at bigint,
  add column max_backlog integer,
  add column drop_when_full boolean not null default false,
  add column backlog bigint not null default 0,
  add column dropped bigint not null default 0,
  add column heard_id bigint not null default 0;
alter table fairqueue.fq_signal
  add column added integer not null default 0,
  add column queue_freed integer not null default 0,
  add column dropped integer not null default 0,
  add column bounded boolean not null default false;
alter table fairqueue.fq_message
  add column delivered_at bigint,
  add column returned_at bigint,
  add column cancelled boolean not null default false;
alter table fairqueue.fq_lease
  add column waiting_until bigint;

-- At once: a row a consumer.
create index fq_lease_waiting_ix on fairqueue.fq_lease (queue, waiting_until) where waiting_until is not null;

-- In proportion to the signals that nobody has heard yet: as a rule a handful.
create index fq_signal_bounded_ix on fairqueue.fq_signal (channel_id, id) where bounded;

-- In proportion to the messages: the table is read once, the index is empty.
create index fq_message_cancelled_ix on fairqueue.fq_message (lease_id) where cancelled;

-- In proportion to the messages in nobody's hands, and to the channels that have any: signals of version 1 count nothing, so that all are counted here.
update fairqueue.fq_channel_state s
set turn = s.turn + 1,
  backlog = n.messages
from (
  select m.channel_id, count(*) as messages
  from fairqueue.fq_message m
  where m.lease_id is null
  group by m.channel_id
) n
where s.channel_id = n.channel_id;
