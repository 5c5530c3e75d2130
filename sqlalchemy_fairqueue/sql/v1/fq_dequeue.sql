-- fq_dequeue: lease up to p_limit ready messages of a queue, taking channels in turn.
-- Guarantees: never more than the limit, the queue's limit or rate, a channel's max_concurrency or rate, or those of
-- its plan that were committed when the call began; contents and headers (as text) of no more than p_max_bytes (null:
-- any), or one message that is larger; nothing of a paused queue or channel; within a channel by (dequeue_at, id). The
-- rows come in the order of start tags in virtual time: a message moves its channel by its cost, or by 1 if the queue is
-- fair by messages, divided by the weight. A call that passes by channels that others hold takes nothing beyond the turn
-- of fq_attend, so that consumers together serve the order that one would.
-- One row a message, then one about the call (message_id null): the lease; holds_slots: whether messages of this call
-- hold slots of a limit, which their end frees; is_timed: whether the queue is fair by seconds; keeps_results; due_in:
-- microseconds until something may be due, null: nothing is scheduled; is_held: what is due is locked.
-- p_lease_id is used again if it is good for p_lease more, see fq_lease_for. Who finds nothing due writes nothing.
-- Locks: own lease; a part of the gate of a queue without a limit; the queue's state, if it attends to the queue or the
-- queue has a limit; state rows of channels; messages. All for no key update, skip locked: it waits for none, but for
-- 5 ms at the first delivery of a queue or after a crash. Without the gate or the state that it needs it takes nothing,
-- due again in 10 ms. READ COMMITTED, in a transaction of its own: while it is open, nobody else hears the signals.
-- Index: those of its steps. Errors: QF001 bad argument, QF003 wrong isolation level, QF007.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996); generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_dequeue(
  p_queue text, p_limit integer, p_lease bigint, p_consumer text, p_lease_id bigint default null,
  p_max_bytes bigint default null
)
returns table (
  message_id bigint, row_id tid, channel_id bigint, channel text, kind text, content bytea, headers jsonb,
  enqueued_at bigint, attempt integer, max_attempts integer, deliveries integer, lease_id bigint,
  lease_expires_at bigint, holds_slots boolean, is_timed boolean, keeps_results boolean, due_in bigint, is_held boolean
)
language plpgsql
volatile
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_queue fairqueue.fq_queue;
  v_state fairqueue.fq_queue_state;
  l record;
  a record;
  c record;
  r record;
  v_lease_id bigint;
  v_hearer boolean;
  v_has_ready boolean;
  v_limit integer := p_limit;
  v_left integer;
  v_bytes bigint := p_max_bytes;
  v_got integer := 0;
  v_alone boolean;
  v_width integer;
  v_skip bigint[] := '{}';
  v_stop text;
  v_drawn boolean;
begin
  perform fairqueue.fq_check_dequeue(p_queue, p_limit, p_lease, p_consumer, p_max_bytes);

  -- Look.
  for v_try in 1..2 loop
    l := fairqueue.fq_look(p_queue, v_now);
    exit when not l.has_work and l.first_tag is null or num_nulls((l.state).queue, l.epoch) = 0;
    v_stop := case when v_try = 2 or not fairqueue.fq_open_queue(p_queue) then 'locked' end;
    exit when v_stop is not null;
  end loop;
  v_queue := l.settings;

  -- Attend to the queue, or take beside the call that does.
  a := fairqueue.fq_attend(p_queue, p_limit, l, v_now);
  v_state := a.state;
  v_hearer := num_nulls(a.row_id) = 0;

  -- Room.
  v_has_ready := (l.has_work or a.first_tag is not null) is true;
  if l.is_limited and num_nulls(v_queue.paused_at) = 1 then
    r := fairqueue.fq_queue_room(p_queue, v_queue.limits::text[], p_limit, v_state, v_hearer, v_has_ready, v_now);
    v_limit := r.room;
    v_drawn := r.is_drawn;
  end if;
  v_left := case when v_has_ready and num_nonnulls(v_queue.paused_at, v_stop) = 0 then coalesce(v_limit, 0) else 0 end;
  v_width := v_left;
  v_alone := v_left = 1 or v_hearer and a.first_tag is null and a.heard + a.moved = 1;
  for v_pass in 0..31 loop
    exit when v_left = 0 or v_stop is not null;
    -- Choose.
    if v_alone then
      c := fairqueue.fq_choose_one(p_queue, v_queue, v_state, a.turn::bigint, v_hearer, v_now);
      continue when c.followed;
      exit when c.state is null;
    else
      c := fairqueue.fq_choose(
        p_queue, v_queue, v_state, a.turn::bigint, v_hearer, v_width, v_left, v_pass::integer, v_bytes,
        (v_got = 0)::boolean, v_skip, v_now
      );
      continue when c.followed;
      exit when c.states is null;
    end if;
    if v_lease_id is null then
      v_stop := case when not l.is_limited and not fairqueue.fq_enter_gate(p_queue) then 'locked' end;
      exit when v_stop is not null;
      r := fairqueue.fq_lease_for(p_queue, p_lease_id, p_lease, p_consumer, l.epoch::bigint, v_now);
      v_lease_id := r.id;
      lease_expires_at := r.expires_at;
    end if;

    -- Take, and charge the channels.
    if v_alone then
      channel_id := c.channel_id;
      select x.*
      into message_id, row_id, channel, kind, content, headers, enqueued_at, attempt, max_attempts, deliveries, v_alone
      from fairqueue.fq_take_one(
        p_queue, v_queue, v_state, c.state::tid, c.channel_id, c.is_limited::boolean, c.head_at::bigint,
        c.head_id::bigint, l.is_limited::boolean, v_lease_id, v_hearer, v_now
      ) x;
      continue when message_id is null;
      return next;
      v_got := v_got + 1;
      holds_slots := c.is_limited or holds_slots is true;
      if v_bytes is not null and v_got < v_limit then
        v_bytes := v_bytes - fairqueue.fq_message_size(content, headers);
      end if;
      exit when not v_alone;
      v_alone := false;
    else
      return query
      select t.*, null::bigint, null::bigint, null::boolean, null::boolean, null::boolean, null::bigint, null::boolean
      from fairqueue.fq_take(p_queue, v_queue, v_state, c, l.is_limited::boolean, v_lease_id, v_hearer, v_now) t;
      -- Channels that turned out to be empty must not hide the ready ones behind them: the next pass is wider.
      v_got := v_got + coalesce(cardinality(c.rows), 0);
      v_width := case when num_nulls(c.rows) = 1 then least(2 * v_width, 100000) else v_limit - v_got end;
      v_bytes := v_bytes - coalesce(c.bytes, 0);
      v_skip := c.skip;
      holds_slots := true = any (c.limited) or holds_slots is true;
      v_stop := case when c.is_cut or v_bytes <= 0 then 'cut' when c.passed then 'passed' end;
    end if;
    v_left := v_limit - v_got;
    v_stop := coalesce(v_stop, case when v_pass = 31 then 'again' end);
  end loop;

  -- Report.
  r := fairqueue.fq_report(p_queue, p_limit, l, a, v_limit, v_drawn, v_got, v_stop, v_now);
  due_in := r.due_in;
  is_held := r.is_held;
  -- The row about the call must not repeat the columns of the message that was returned last, which may be large.
  message_id := null;
  content := null;
  headers := null;
  lease_id := coalesce(v_lease_id, p_lease_id);
  holds_slots := holds_slots is true or l.is_limited;
  is_timed := (v_queue.fair_by = 'seconds') is true;
  keeps_results := v_queue.result_retention is not null;
  return next;
end
$$;
