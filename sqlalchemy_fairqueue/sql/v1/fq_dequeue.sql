-- fq_dequeue: lease up to p_limit ready messages of a queue, taking channels in turn. The lease p_lease_id is used
-- again if it is good for p_lease more (fq_lease_for). Returns a row a message, in the order of start tags, then one
-- about the call (message_id null): lease_id; holds_slots: its messages may hold slots of a limit, which their end
-- frees; is_timed: the queue is fair by seconds; keeps_results; due_in: microseconds until something may be due (null:
-- nothing is scheduled); is_held: something is due, but others have it locked.
-- Guarantees: the call keeps to p_limit, to the limits and rates of the queue and of each channel, to pauses, and to
-- plans as they were when it began. The messages have at most p_max_bytes (null: any) of content and headers (as text)
-- together, or one larger message goes alone. A channel gives messages by (dequeue_at, id). Each moves its channel's
-- start tag by its cost, or by 1 if the queue is fair by messages, divided by the weight. Beside others the call keeps
-- to bound_tag as fq_choose_one and fq_choose say. If nothing is due, or the queue is at its limit, it writes nothing.
-- Locks: those of its steps, all skip locked. Only the first delivery of a queue or server may wait, for 5 ms a lock.
-- If another transaction has the dispatch row of a queue with a limit, it takes nothing and is due again in 10 ms. READ
-- COMMITTED, in a transaction of its own: while one that attends is open, no other hears signals.
-- Index: those of its steps. Errors: QF001 bad argument, QF003 wrong isolation level, QF007.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996); generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_dequeue(
  p_queue text, p_limit integer, p_lease bigint, p_consumer text, p_lease_id bigint default null,
  p_max_bytes bigint default null
)
returns table (
  message_id bigint, row_id tid, channel_id bigint, channel text, kind text, content bytea, headers jsonb,
  ordering_key text, enqueued_at bigint, attempt integer, max_attempts integer, deliveries integer, lease_id bigint,
  lease_expires_at bigint, holds_slots boolean, is_timed boolean, keeps_results boolean, due_in bigint, is_held boolean
)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_check_dequeue(p_queue, p_limit, p_lease, p_consumer, p_max_bytes);
  l record;
  c record;
  r record;
  v_lease_id bigint;
  v_cost bigint;
  v_left integer;
  v_bytes bigint := p_max_bytes;
  v_got integer := 0;
  v_alone boolean;
  v_width integer;
  v_skip bigint[] := '{}';
  v_stop text;
begin
  -- Look.
  for v_try in 1..2 loop
    l := fairqueue.fq_look(p_queue, p_limit, v_now);
    exit when not l.has_work and l.first_tag is null or num_nulls((l.state).queue, l.epoch) = 0;
    v_stop := case when v_try = 2 or not fairqueue.fq_open_queue(p_queue) then 'locked' end;
    exit when v_stop is not null;
  end loop;

  -- Attend to the queue, or take beside the call that does.
  if l.must_attend then
    l := fairqueue.fq_attend(p_queue, p_limit, l, v_now);
  end if;

  -- Room.
  if l.is_limited and not l.is_paused then
    l := fairqueue.fq_queue_room(p_queue, l, v_now);
  end if;
  v_left := case
    when (l.has_work or l.first_tag is not null) and not l.is_paused and v_stop is null then coalesce(l.room, 0)
    else 0
  end;
  v_width := v_left;
  v_alone := (v_left = 1 or l.dispatch_row is not null and l.first_tag is null and l.heard + l.moved = 1)
    and num_nonnulls(l.rate_left, l.cost_left) = 0;
  for v_pass in 0..31 loop
    exit when v_left = 0 or v_stop is not null;
    if v_alone then
      c := fairqueue.fq_choose_one(p_queue, l, v_now);
      v_alone := c.is_metered is not true;
      continue when not v_alone;
    else
      c := fairqueue.fq_choose(
        p_queue, l, v_width, v_left, v_pass::integer, v_bytes, (v_got = 0)::boolean, v_skip, v_now
      );
    end if;
    continue when c.followed;
    exit when c.followed is null;
    if v_lease_id is null then
      r := fairqueue.fq_lease_for(p_queue, p_lease_id, p_lease, p_consumer, l, v_now);
      v_lease_id := r.id;
      lease_expires_at := r.expires_at;
      v_stop := case when v_lease_id is null then 'locked' end;
      exit when v_stop is not null;
    end if;
    if v_alone then
      select x.*
      into message_id, row_id, channel_id, channel, kind, content, headers, ordering_key, enqueued_at, attempt,
        max_attempts, deliveries, v_cost, v_alone
      from fairqueue.fq_take_one(p_queue, l, c, v_lease_id, v_now) x;
      continue when message_id is null;
      return next;
      v_got := v_got + 1;
      l.spent := l.spent + v_cost;
      holds_slots := c.is_limited or holds_slots is true;
      if v_bytes is not null and v_got < l.room then
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
        delivered_at = case when l.history then v_now end,
        charged = case when l.is_timed then coalesce(m.cost, c.estimates[u.ord]) end
      from unnest(c.rows, c.ords) u(row, ord)
      where m.ctid = u.row
        and num_nulls(m.lease_id) = 1
      returning m.id, m.ctid, m.channel_id, (select n.name from fairqueue.fq_channel n where n.id = m.channel_id),
        m.kind, m.content, m.headers, m.ordering_key, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries,
        null::bigint, null::bigint, null::boolean, null::boolean, null::boolean, null::bigint, null::boolean;
      perform fairqueue.fq_charge(
        p_queue, c.states::tid[], c.givers::integer[], c.gots::integer[], c.charges::bigint[],
        c.next_heads_at::bigint[], c.next_head_ids::bigint[], l.by_cost::boolean, v_now,
        l.state::fairqueue.fq_queue_state, (l.dispatch_row is not null)::boolean
      );
      -- Channels that turned out to be empty must not hide the ready ones behind them: the next pass is wider.
      v_got := v_got + coalesce(cardinality(c.rows), 0);
      l.spent := l.spent + coalesce((select sum(x.cost) from unnest(c.charges) x(cost)), 0);
      v_width := case when num_nulls(c.rows) = 1 then least(2 * v_width, 100000) else l.room - v_got end;
      v_bytes := v_bytes - coalesce(c.bytes, 0);
      v_skip := c.skip;
      holds_slots := true = any (c.limited) or holds_slots is true;
      c.is_cut := c.is_cut and (num_nonnulls(c.rows) = 1 or v_pass > 2) or v_bytes <= 0;
      v_stop := case when c.is_full then 'full' when c.is_cut then 'cut' when c.passed then 'passed' end;
    end if;
    v_left := l.room - v_got;
    v_stop := coalesce(v_stop, case when v_pass = 31 then 'again' end);
  end loop;

  -- Report.
  r := fairqueue.fq_report(p_queue, p_limit, l, v_got, v_stop, v_now);
  due_in := r.due_in;
  is_held := r.is_held;
  -- The row about the call must not repeat the columns of the message that was returned last, which may be large.
  message_id := null;
  content := null;
  headers := null;
  lease_id := coalesce(v_lease_id, p_lease_id);
  holds_slots := holds_slots is true or l.is_limited;
  is_timed := l.is_timed;
  keeps_results := l.keeps_results;
  return next;
end
$$;
