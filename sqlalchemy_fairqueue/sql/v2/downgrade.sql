-- Version 2 to 1, in one transaction. What only version 2 can keep is lost: history, limits of queues, bounds of backlogs, pauses.
-- The tables are locked as by the upgrade. Consumers and applications of version 2 are to be stopped before.
do $$
declare
  v_timeout text := current_setting('lock_timeout');
  v_tries integer := 0;
begin
  begin
    set local lock_timeout = '60s';
    lock table fairqueue.fq_lease, fairqueue.fq_queue, fairqueue.fq_channel_state, fairqueue.fq_message, fairqueue.fq_signal
      in share update exclusive mode;
  exception when lock_not_available then
    raise exception 'a table of the queues is being vacuumed, analyzed or indexed, for a minute already'
      using errcode = '55P03', hint = 'wait for its end, or end it (pg_stat_progress_vacuum and pg_stat_progress_create_index name it), then downgrade again';
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
          using errcode = '55P03', hint = 'end the open transactions that have used the queues (pg_stat_activity names them), then downgrade again';
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  perform set_config('lock_timeout', v_timeout, true);
end
$$;

-- In proportion to the messages in consumers' hands. One that was withdrawn there has no attempt left: a worker that gives up on it buries it.
update fairqueue.fq_message m
set slots = m.slots & 1,
  max_attempts = case when m.cancelled then greatest(1, m.attempts) else m.max_attempts end
where m.lease_id is not null
  and (m.slots > 1 or m.cancelled);

-- In proportion to the channels. A paused channel stands in line again where its last service or its message puts it, whichever is later.
update fairqueue.fq_channel_state s
set turn = s.turn + 1,
  next_dequeue_at = greatest(
    s.head_dequeue_at,
    s.last_dequeue_at,
    case when s.release_interval > 0 then s.release_at - (s.release_burst - 1) * s.release_interval end
  )
where s.paused_at is not null
  and s.head_dequeue_at is not null;

-- At once. A queue without a policy of its own has no row in version 1. The indexes go with their columns.
delete from fairqueue.fq_queue q
where not q.has_policy;
alter table fairqueue.fq_queue
  drop constraint fq_queue_limits_check,
  drop column has_policy,
  drop column global_max_concurrency,
  drop column paused_at,
  drop column history,
  drop column history_retention,
  drop column max_backlog,
  drop column drop_when_full;
alter table fairqueue.fq_channel_state
  drop column paused_at,
  drop column max_backlog,
  drop column drop_when_full,
  drop column backlog,
  drop column dropped,
  drop column heard_id;
alter table fairqueue.fq_signal
  drop column added,
  drop column queue_freed,
  drop column dropped,
  drop column bounded;
alter table fairqueue.fq_message
  drop column delivered_at,
  drop column returned_at,
  drop column cancelled;
alter table fairqueue.fq_lease
  drop column waiting_until;
