-- fq_dequeue: lease up to p_limit ready messages of a queue, taking channels in turn.
-- Guarantees: never more than the limit, the queue's limit or rate, a channel's max_concurrency or rate, or those of
-- its plan that were committed when the call began; contents and headers (as text) of no more than p_max_bytes (null:
-- any), or one message that is larger; nothing of a paused queue or channel; within a channel by (dequeue_at, id). The
-- rows come in the order of their start tags in virtual time: a message moves its channel by its cost, by the channel's
-- weight. It costs 1 in a queue that is fair by messages, see fq_set_queue. A call that passes by channels that others
-- hold goes no further than the place where the first ready channel will stand after one message, so that consumers
-- together serve the order that one would; the bound ends when that channel has stood still for a second.
-- One row a message, then one row about the call (message_id null): the lease; holds_slots: whether messages of this
-- call hold slots of a limit, which their end frees; is_timed: whether the queue is fair by seconds; keeps_results;
-- due_in: microseconds until something may be due, null: nothing is scheduled; is_held: what is due is locked.
-- The lease p_lease_id is used again if it is good for p_lease microseconds more, see fq_lease_for. A call that finds
-- nothing due reads no lease, returns p_lease_id as it is, and writes nothing: its commit has nothing to wait for.
-- Locks: own lease and, of a queue without a limit, a part of its gate; the queue's state if it attends to the queue, or
-- the queue has a limit; state rows of channels and messages: all for no key update, skip locked: it waits for none.
-- While it cannot have the gate or, of a queue with a limit, the state, it takes nothing, due again in 10 ms. The first
-- delivery of a queue, or after a crash, waits 5 ms at most for another. READ COMMITTED only, in a transaction of its
-- own: while it is open, nobody else hears the signals of the queue.
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
#variable_conflict use_column
declare
  v_now bigint := fairqueue.fq_now();
  v_queue fairqueue.fq_queue;
  v_state fairqueue.fq_queue_state;
  -- what the steps return
  l record;
  a record;
  o record;
  c record;
  e record;
  r record;
  v_lease_id bigint;
  v_hearer boolean;
  v_bound bigint;
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
  v_bound := a.turn;
  if a.first_tag = v_state.ready_floor and v_state.still_since <= v_now - 1000000 then
    -- Whoever holds the first ready channel may do so for long.
    v_bound := null;
  end if;

  -- Room.
  if l.is_limited and num_nulls(v_queue.paused_at) = 1 then
    if v_hearer then
      r := fairqueue.fq_queue_room(p_queue, v_queue.limits::text[], p_limit, v_state, v_now);
      v_limit := r.room;
      v_drawn := r.is_drawn;
    elsif l.has_work or a.first_tag < 0 then
      v_limit := null;
    else
      v_limit := greatest(0, least(p_limit, v_state.max_concurrency - v_state.current_concurrency));
    end if;
  end if;
  v_left := coalesce(v_limit, 0);
  if v_queue.paused_at is not null or v_stop is not null or not (l.has_work or a.first_tag < 0) is true then
    v_left := 0;
  end if;
  v_width := v_left;
  v_alone := v_left = 1 or v_hearer and a.first_tag is null and a.heard + a.moved = 1;
  for v_pass in 0..31 loop
    exit when v_left = 0;
    -- Choose.
    if v_alone then
      o := fairqueue.fq_choose_one(p_queue, v_queue, v_state, v_bound, v_hearer, v_now);
      continue when o.followed;
      exit when o.state is null;
    else
      c := fairqueue.fq_choose(
        p_queue, v_queue, v_state, v_bound, v_hearer, v_width, v_left, v_pass::integer, v_bytes, (v_got = 0)::boolean,
        v_skip, v_now
      );
      continue when c.followed;
      exit when c.states is null;
    end if;
    if v_lease_id is null then
      v_stop := case when not l.is_limited and not fairqueue.fq_enter_gate(p_queue) then 'locked' end;
      exit when v_stop is not null;
      e := fairqueue.fq_lease_for(p_queue, p_lease_id, p_lease, p_consumer, l.epoch::bigint, v_now);
      v_lease_id := e.id;
      lease_expires_at := e.expires_at;
    end if;

    -- Take, and charge the channels.
    if v_alone then
      channel_id := o.channel_id;
      select x.*
      into message_id, row_id, channel, kind, content, headers, enqueued_at, attempt, max_attempts, deliveries, v_alone
      from fairqueue.fq_take_one(
        p_queue, v_queue, v_state, o.state::tid, o.channel_id, o.is_limited::boolean, o.head_at::bigint,
        o.head_id::bigint, l.is_limited::boolean, v_lease_id, v_hearer, v_now
      ) x;
      if message_id is null then
        v_alone := false;
        continue;
      end if;
      return next;
      v_got := v_got + 1;
      v_left := v_left - 1;
      holds_slots := o.is_limited or holds_slots is true;
      if v_bytes is not null and v_left > 0 then
        v_bytes := v_bytes - fairqueue.fq_message_size(content, headers);
      end if;
      exit when not v_alone;
      v_alone := false;
    else
      return query
      update fairqueue.fq_message m
      set lease_id = v_lease_id,
        attempts = m.attempts + 1,
        deliveries = m.deliveries + 1,
        slots = case when c.limited[u.ord] then 1 else 0 end + case when l.is_limited then 2 else 0 end,
        delivered_at = case when v_queue.history then v_now end
      from unnest(c.rows, c.ords) u(row, ord)
      where m.ctid = u.row
        and num_nulls(m.lease_id) = 1
      returning m.id, m.ctid, m.channel_id, (select n.name from fairqueue.fq_channel n where n.id = m.channel_id),
        m.kind, m.content, m.headers, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries,
        null::bigint, null::bigint, null::boolean, null::boolean, null::boolean, null::bigint, null::boolean;
      perform fairqueue.fq_charge(
        p_queue, c.states::tid[], c.gots::integer[], c.charges::bigint[], c.next_heads_at::bigint[],
        c.next_head_ids::bigint[], v_now, v_state, v_hearer
      );
      -- Channels that turned out to be empty must not hide the ready ones behind them: the next pass is wider.
      v_got := v_got + coalesce(cardinality(c.rows), 0);
      v_width := case when num_nulls(c.rows) = 1 then least(2 * v_width, 100000) else v_limit - v_got end;
      v_left := v_limit - v_got;
      v_bytes := v_bytes - coalesce(c.bytes, 0);
      v_skip := c.skip;
      holds_slots := true = any (c.limited) or holds_slots is true;
      v_stop := case when c.is_cut or v_bytes <= 0 then 'cut' when c.passed then 'passed' end;
      exit when v_stop is not null;
    end if;
    v_stop := case when v_pass = 31 then 'again' end;
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
