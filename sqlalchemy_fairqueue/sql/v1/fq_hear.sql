-- fq_hear: apply up to 1,000 signals of a queue to the states of their channels, and make channels ready whose time has
-- come. A dequeue does so by itself. heard: signals applied; has_more: more of them are left.
-- Guarantees, locks, index: as fq_attend. It does nothing if another call attends to the queue.
-- Errors: QF001 bad argument; QF003 wrong isolation level; QF007.
create function fairqueue.fq_hear(p_queue text, out heard integer, out has_more boolean)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_sight record;
begin
  heard := 0;
  has_more := false;
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  if p_queue is null then
    raise exception 'fq_hear has no queue'
      using errcode = 'QF001', hint = 'name a queue';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_hear runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction of its own';
  end if;
  v_sight := fairqueue.fq_look(p_queue, 0::integer, v_now);
  v_sight.has_expired := false;
  v_sight.has_promotions := false;
  v_sight.has_plans := false;
  v_sight.has_work := v_sight.is_signalled or v_sight.is_due;
  v_sight.may_note := true;
  if not v_sight.has_work then
    return;
  end if;
  if (v_sight.state).queue is null then
    perform fairqueue.fq_open_queue(p_queue);
  end if;
  v_sight := fairqueue.fq_attend(p_queue, 1000::integer, v_sight, v_now);
  if v_sight.heard + v_sight.moved > 0 or v_sight.must_note then
    perform fairqueue.fq_note(v_sight.dispatch_row::tid, v_sight.state::fairqueue.fq_queue_state, v_now);
  end if;
  heard := v_sight.heard;
  has_more := v_sight.has_more;
end
$$;
