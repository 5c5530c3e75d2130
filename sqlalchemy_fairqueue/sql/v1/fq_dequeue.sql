-- fq_dequeue: lease up to p_limit ready messages of a queue, taking channels in turn.
-- Guarantees: never more than the limit, the queue's limit or rate, a channel's max_concurrency or rate, or those of
-- its plan that were committed when the call began; contents and headers (as text) of no more than p_max_bytes (null:
-- any), or one message that is larger; nothing of a paused queue or channel; within a channel by (dequeue_at, id). The
-- rows come in the order of their start tags in virtual time: a message moves its channel by its cost, by the channel's
-- weight. It costs 1 in a queue that is fair by messages, see fq_set_queue. A call that passes by channels that others
-- hold goes no further than the place where the first ready channel will stand after one message, so that consumers
-- together serve the order that one would; the bound ends when that channel has stood still for a second.
-- One row a message, then one row about the call (message_id null): the lease, scan hints to pass to the next call (the
-- seventh says whether messages of this one hold slots of a limit, which their end frees, the eleventh whether the
-- queue is fair by seconds, the twelfth whether it keeps results), microseconds until something may be due (null:
-- nothing is scheduled), and the last signal seen when more are waiting (hear them with fq_hear first). Hints that
-- another server gave, or this one before its start, are left aside together with p_lease_id.
-- The lease p_lease_id is used again if it is good for p_lease microseconds more; else a new one is made, good for a
-- little longer than that. A call that finds no ready channel, no signal and no expired lease reads no lease,
-- returns p_lease_id as it is, and writes nothing: its commit has nothing to wait for.
-- Steps: what is due comes back (fq_reclaim, fq_promote, fq_spread_plans), signals are heard (fq_hear_signals,
-- fq_signal_floor_after), channels become due (fq_move_due), the queue's limits are read (fq_queue_room). Then in
-- passes: ready channels are locked, the gate is entered (fq_enter_gate), messages are chosen (fq_cut_batch), locked
-- and leased, the channels pay for them (fq_charge). At last the next call is planned.
-- The rest is in this function: leasing messages in a function of its own would cost 3 % of a dequeue of one message,
-- and 2 % of one of a hundred.
-- Locks: own lease and, of a queue without a limit, a part of its gate, state rows (the queue's too if it has a limit)
-- and messages for no key update, all skip locked: it waits for none. While it cannot have the gate or the queue's
-- state row it takes nothing, due again in 10 ms. If an open transaction has locked what is due, or has closed the
-- gate, the call asks to be called again: after as long as the calls with these hints have waited for that already, a
-- second at most. The first delivery of a queue makes its gate, and waits 5 ms at most for another that does. READ
-- COMMITTED only.
-- Index: fq_queue_pkey, fq_gate_pkey, fq_queue_state_newest_ix, fq_channel_state_ready_ix, fq_message_ready_ix; rows by
-- ctid. Errors: QF001 bad argument, QF003 wrong isolation level, QF007.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996); generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_dequeue(
  p_queue text,
  p_limit integer,
  p_lease bigint,
  p_consumer text,
  p_lease_id bigint default null,
  p_hints bigint[] default null,
  p_max_bytes bigint default null
)
returns table (
  message_id bigint,
  row_id tid,
  channel_id bigint,
  channel text,
  kind text,
  content bytea,
  headers jsonb,
  enqueued_at bigint,
  attempt integer,
  max_attempts integer,
  deliveries integer,
  lease_id bigint,
  lease_expires_at bigint,
  hints bigint[],
  due_in bigint,
  signals_after bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
  -- A call for one message evaluates each default and each condition that it meets, which is a fifth of its time: what
  -- only some calls need is declared in blocks of their own.
  c_nothing constant bigint := -9223372036854775808;
  c_chunk constant integer := 1000;
  c_late constant bigint := 10000000;
  c_still constant bigint := 1000000;
  v_now bigint := fairqueue.fq_now();
  v_lease_id bigint;
  v_expires_at bigint;
  v_new_lease boolean := true;
  v_expired_at bigint;
  v_promoted_at bigint;
  -- whether messages came back, or got another position, by this call
  v_expired boolean := false;
  -- of the queue
  v_paused boolean;
  v_history boolean;
  v_results boolean;
  v_limited_queue boolean;
  v_limits text[];
  v_plans boolean;
  v_spread_in bigint;
  -- whether messages cost what they name, and not 1
  v_by_cost boolean;
  v_fair_by text;
  v_virtual_time bigint;
  -- where the first ready channel stands, locked or not, and where it will stand after one message
  v_first_tag bigint;
  v_bound bigint;
  -- since when it has stood there; whether this call had it
  v_still_since bigint;
  v_got_first boolean := false;
  v_waited_at bigint;
  -- of its shared limits and rate
  v_queue_state tid;
  v_limit integer := p_limit;
  v_drawn boolean := false;
  v_rate_at bigint;
  v_rate_interval bigint;
  v_rate_burst integer;
  v_drawn_due_at bigint;
  v_closed boolean := false;
  -- what the batch may still grow by (null: any); whether the next message would have been too much
  v_bytes_left bigint := p_max_bytes;
  v_cut boolean := false;
  -- hints: where the ready order was found to begin, the floor of the signals, their next floor once the writers below
  -- this xid have ended, when the next full scan is due, when the next scan below the first floor is due; the tenth is
  -- the floor of the leases: below it are only versions that have ended, but for a lease that was committed long after
  -- its end, which a full scan finds
  v_channel_floor bigint := case when p_hints[1] < 0 then p_hints[1] else c_nothing end;
  v_hinted_floor bigint := v_channel_floor;
  v_signal_floor bigint := coalesce(p_hints[2], 0);
  v_next_signal_floor bigint := p_hints[3];
  v_floor_xid bigint := p_hints[4];
  v_full_at bigint := coalesce(p_hints[5], 0);
  v_full boolean := v_now >= v_full_at or v_full_at > v_now + 60000000;
  v_below_at bigint := coalesce(p_hints[6], 0);
  -- the hints from the fourteenth on: transactions that were open when the floor of the signals rose past them, see
  -- fq_still_open_transactions; what they signalled is searched from the floor before, once they have ended
  v_open bigint[] := case when p_hints[14] is not null then p_hints[14:] end;
  v_lease_floor bigint := case when v_full then 0 else least(coalesce(p_hints[10], 0), v_now - c_late) end;
  -- further hints: since when the same is due and locked, and what that is: a position in the ready order, or a signal
  v_locked_since bigint;
  v_locked_first bigint;
  v_below boolean := not v_full and (v_now >= v_below_at or v_below_at > v_now + 60000000);
  v_whole_order boolean;
  v_order_floor bigint;
  v_scan_cost bigint;
  v_snapshot pg_snapshot;
  -- the floor for counts; null: open transactions may have signals below it
  v_count_floor bigint;
  v_signalled boolean;
  v_unwritten boolean;
  v_heard integer := 0;
  v_seen integer := 0;
  v_first_signal bigint;
  -- the channels of a pass, in ready order
  v_states tid[];
  v_channels bigint[];
  v_limited boolean[];
  v_rooms integer[];
  v_heads_at bigint[];
  v_head_ids bigint[];
  v_tags bigint[];
  v_rests bigint[];
  v_weights integer[];
  v_found integer;
  v_first bigint;
  v_width integer;
  v_left integer;
  -- where no message of the batch starts beyond; how many of each channel are read
  v_upto bigint;
  v_depth integer;
  v_pass integer := 0;
  v_empty integer := 0;
  -- whether several channels may give something; whether none does from the floor on; whether others hold some
  v_several boolean := false;
  v_bare boolean := false;
  v_passed boolean := false;
  -- messages that others have locked
  v_skip bigint[] := '{}';
  -- the only channel, and its messages
  v_state tid;
  v_channel_id bigint;
  v_has_limit boolean;
  v_holds_slots boolean := false;
  v_room integer;
  v_head_at bigint;
  v_head_id bigint;
  v_got integer;
  v_cost bigint;
  v_message_cost integer;
  v_next bigint[];
  -- the thirteenth hint: the server that gave the hints, by the time of its start
  v_server bigint := (date_part('epoch'::text, pg_postmaster_start_time()) * 1000000)::bigint;
begin
  if p_hints[13] <> v_server then
    -- Another server, or the same one after a restore, may have gone on from an earlier moment. It gives ids of signals
    -- that are below the floors, and ids of messages a second time: a token under the same lease would come twice.
    return query
    select d.*
    from fairqueue.fq_dequeue(p_queue, p_limit, p_lease, p_consumer, null::bigint, null::bigint[], p_max_bytes) d;
    return;
  end if;
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  if p_queue is null
    or p_limit is null or p_limit not between 1 and 100000
    or p_lease is null or p_lease not between 1 and 31536000000000
    or p_consumer is null or octet_length(p_consumer) > 512
    or p_max_bytes < 1
  then
    raise exception 'fq_dequeue has queue %, limit %, lease % microseconds, consumer %, at most % bytes',
        left(p_queue, 80), p_limit, p_lease, left(p_consumer, 80), p_max_bytes
      using errcode = 'QF001',
        hint = 'ask for 1 to 100000 messages under a lease of 1 microsecond to 365 days, with the name of a consumer '
          'of at most 512 bytes, and for at least 1 byte or any number (null)';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_dequeue runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction of its own';
  end if;

  if v_full then
    v_channel_floor := c_nothing;
    v_scan_cost := -fairqueue.fq_now();
  end if;
  -- One statement answers all questions, since starting a statement costs more than running it.
  select q.paused_at is not null, q.history, q.result_retention is not null, q.limits, q.plans,
    q.max_concurrency is not null or (q.rate_interval > 0) is true or q.limits is not null,
    (q.fair_by <> 'messages') is true, q.fair_by, f.tag,
    case
      when f.tag is not null then
        fairqueue.fq_tag_after(
          f.tag::bigint, f.tag_rest::bigint,
          (
            case
              when q.fair_by <> 'messages' then
                (select m.cost from fairqueue.fq_message m where m.id = f.head_message_id)
              else 1
            end
          )::bigint,
          f.weight::integer
        )
    end,
    pg_current_snapshot(),
    pg_current_xact_id_if_assigned() is null,
    (
      select e.expires_at
      from fairqueue.fq_lease e
      where e.queue = p_queue
        and e.expires_at >= v_lease_floor
        and e.expires_at <= v_now
      order by e.queue, e.expires_at
      limit 1
    ),
    (
      select o.due_at
      from fairqueue.fq_promotion o
      where o.queue = p_queue
        and o.due_at >= v_lease_floor
        and o.due_at <= v_now
      order by o.queue, o.due_at
      limit 1
    ),
    exists (
      select
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.id > case when v_full then 0 else v_signal_floor end
    ),
    (
      select s.next_dequeue_at
      from fairqueue.fq_channel_state s
      where s.queue = p_queue
        and s.next_dequeue_at is not null
        and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
        and s.next_dequeue_at >= greatest(0, v_lease_floor)
        and s.next_dequeue_at <= v_now
      order by s.queue, s.next_dequeue_at
      limit 1
    )
  into v_paused, v_history, v_results, v_limits, v_plans, v_limited_queue, v_by_cost, v_fair_by, v_first_tag, v_bound,
    v_snapshot, v_unwritten, v_expired_at, v_promoted_at, v_signalled, v_waited_at
  from (values (p_queue)) asked (name)
  left join fairqueue.fq_queue q on q.name = asked.name
  left join lateral (
    select s.next_dequeue_at as tag, s.tag_rest, s.weight, s.head_message_id
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.next_dequeue_at is not null
      and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
      and s.next_dequeue_at >= v_hinted_floor
      and s.next_dequeue_at < 0
    order by s.queue, s.next_dequeue_at
    limit 1
  ) f on true;
  -- Who becomes ready starts where the first ready channel stands or, while none is ready, where the last one stood.
  v_virtual_time := coalesce(v_first_tag, fairqueue.fq_greatest_tag(p_queue));
  if v_virtual_time > -1000000000000000000 and fairqueue.fq_rebase_tags(p_queue) then
    return query
    select d.*
    from fairqueue.fq_dequeue(p_queue, p_limit, p_lease, p_consumer, p_lease_id, null::bigint[], p_max_bytes) d;
    return;
  end if;
  v_still_since := case when p_hints[9] = v_first_tag and p_hints[8] <= v_now then p_hints[8] else v_now end;
  if v_still_since <= v_now - c_still then
    -- Whoever holds it may do so for long.
    v_bound := null;
    v_virtual_time := fairqueue.fq_virtual_time(p_queue, v_first_tag);
  end if;
  v_lease_floor := least(v_expired_at, v_promoted_at, v_waited_at, v_now - c_late);
  if v_plans or v_expired_at is not null or v_promoted_at is not null then
    if v_expired_at is not null then
      perform fairqueue.fq_reclaim(p_queue, c_chunk, v_expired_at);
    end if;
    if v_promoted_at is not null then
      perform fairqueue.fq_promote(p_queue, c_chunk, v_promoted_at, v_now);
    end if;
    v_expired := num_nonnulls(v_expired_at, v_promoted_at) > 0;
    if v_plans then
      -- A separate if, as below: PostgreSQL starts the query of a condition even where the rest of the condition
      -- decides.
      if exists (
        select
        from fairqueue.fq_plan n
        where n.queue = p_queue
          and num_nonnulls(n.spread_after) = 1
      ) then
        -- What waited at a limit that has been raised may have done so for long.
        select p.due_in, v_expired or p.followed > 0, case when p.followed > 0 then 0 else v_waited_at end
        into v_spread_in, v_expired, v_waited_at
        from fairqueue.fq_spread_plans(p_queue, c_chunk) p;
      end if;
    end if;
    v_signalled := v_signalled or v_expired;
  end if;
  if v_open is not null then
    v_open := fairqueue.fq_still_open_transactions(v_open, v_snapshot);
    if v_open[1] is not null then
      v_signalled := true;
      v_signal_floor := least(v_signal_floor, v_open[1]);
      -- The floor rises again later, at least as far as it was.
      v_floor_xid := coalesce(v_floor_xid, 0);
    end if;
    v_open := case when v_open[2] is not null then v_open[2:] end;
  end if;
  v_several := v_expired or v_full or v_first_tag is not null;
  if v_signalled or v_floor_xid is not null then
    declare
      v_last_signal bigint;
      v_scheduled_at bigint;
    begin
      if v_signalled then
        select h.heard, h.seen, h.first_id, h.last_id, h.scheduled_at
        into v_heard, v_seen, v_first_signal, v_last_signal, v_scheduled_at
        from fairqueue.fq_hear_signals(
          p_queue, (case when v_full then 0 else v_signal_floor end)::bigint, c_chunk, v_virtual_time
        ) h;
        signals_after := case when v_seen = c_chunk then v_last_signal end;
        -- The scan of the ready order began at the floor; other channels may stand below it.
        v_several := v_several or (v_scheduled_at < v_channel_floor) is true;
        v_channel_floor := least(v_channel_floor, v_scheduled_at);
      end if;
      if v_floor_xid is not null or v_seen > 0 then
        select f.signal_floor, f.next_signal_floor, f.floor_xid, f.still_open
        into v_signal_floor, v_next_signal_floor, v_floor_xid, v_open
        from fairqueue.fq_signal_floor_after(
          v_signal_floor, v_next_signal_floor, v_floor_xid, v_open, v_snapshot, v_first_signal, v_last_signal,
          (v_unwritten and not v_expired)::boolean
        ) f;
      end if;
    end;
  end if;
  if v_waited_at is not null then
    declare
      v_moved integer;
      v_moved_tag bigint;
    begin
      select d.moved, d.first_tag into v_moved, v_moved_tag
      from fairqueue.fq_move_due(
        p_queue, v_now, v_waited_at, greatest(c_chunk, p_limit)::integer, v_virtual_time
      ) d;
      v_several := v_several or v_moved > 0;
      v_channel_floor := least(v_channel_floor, v_moved_tag);
    end;
  end if;
  if v_full then
    v_scan_cost := v_scan_cost + fairqueue.fq_now();
  end if;

  if v_paused then
    v_limit := 0;
  elsif v_limited_queue then
    select r.state, r.room, r.rate_at, r.rate_interval, r.rate_burst, r.is_drawn
    into v_queue_state, v_limit, v_rate_at, v_rate_interval, v_rate_burst, v_drawn
    from fairqueue.fq_queue_room(p_queue, v_limits, p_limit, v_now) r;
  end if;
  v_left := v_limit;
  v_count_floor := case when v_open is null then v_signal_floor end;
  if p_limit > 1 then
    v_width := v_limit;
    -- If no channel was ready before, only the one that was heard of can be ready now.
    v_bare := not v_several and v_heard = 0;
  end if;
  v_several := v_limit > 1 and (v_several or v_seen > 1);
  if v_full and (v_limit = 0 or v_bare) then
    -- The signals were scanned in full, and the ready order was or will be: it has no floor now.
    v_full_at := v_now + least(30 * v_scan_cost, 30000000);
    v_full := false;
  end if;

  v_order_floor := v_channel_floor;
  while v_left > 0 and v_empty < 32 and not v_cut loop
    if v_bare then
      declare
        v_below_cost bigint;
        v_from bigint;
        v_turn bigint;
      begin
        -- From the floor on there is nothing that this call could take. The next call begins at the first channel
        -- there, which is not due or is locked by another call. A scan below the floor reads all versions that were
        -- served while a snapshot is open, so it takes a thirtieth of the time at most.
        v_from := case when v_below then c_nothing else v_order_floor end;
        v_below_cost := -fairqueue.fq_now();
        select s.next_dequeue_at,
          fairqueue.fq_tag_after(
            s.next_dequeue_at, s.tag_rest,
            (
              case
                when v_by_cost then (select m.cost from fairqueue.fq_message m where m.id = s.head_message_id)
                else 1
              end
            )::bigint,
            s.weight
          )
        into due_in, v_turn
        from fairqueue.fq_channel_state s
        where s.queue = p_queue
          and s.next_dequeue_at is not null
          and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
          and s.next_dequeue_at >= v_from
        order by s.queue, s.next_dequeue_at
        limit 1;
        if v_from = c_nothing then
          v_below_cost := v_below_cost + fairqueue.fq_now();
          v_below_at := v_now + least(30 * v_below_cost, 30000000);
          if not v_below then
            v_full_at := least(v_full_at + 30 * v_below_cost, v_now + 30000000);
          end if;
          v_below := false;
          v_whole_order := true;
        end if;
        if due_in > v_bound and due_in < 0 then
          -- What was heard, or another call, has moved the first channel on.
          v_first_tag := due_in;
          v_bound := v_turn;
          v_bare := false;
          v_empty := v_empty + 1;
          due_in := null;
          continue;
        end if;
        if due_in is null or due_in >= v_order_floor then
          v_channel_floor := case when due_in < 0 then due_in else greatest(v_channel_floor, v_virtual_time) end;
          if v_whole_order is not true then
            due_in := least(due_in, v_below_at);
          end if;
          exit;
        end if;
        v_order_floor := due_in;
        v_channel_floor := due_in;
        v_several := v_several or v_limit > 1;
        due_in := null;
      end;
    end if;
    if v_full then
      v_scan_cost := v_scan_cost - fairqueue.fq_now();
    end if;
    -- A row that changed since the snapshot fails the join on row_version when PostgreSQL checks it again, since its
    -- position changed too. ("is not distinct from" is no index condition, so the planner reaches rows by ctid and
    -- never by an index.) One message, or the few of an only channel, are taken by statements of their own: starting
    -- those for many costs more than running them.
    if not v_several then
      select s.ctid, s.channel_id, s.next_dequeue_at, s.head_dequeue_at, s.head_message_id,
        s.max_concurrency is not null,
        least(
          v_limit,
          s.max_concurrency - s.current_concurrency,
          fairqueue.fq_rate_room(v_now, s.rate_at, s.rate_interval, s.rate_burst)
        )
      into v_state, v_channel_id, v_first, v_head_at, v_head_id, v_has_limit, v_room
      from (
        select r.ctid as row, r.row_version, r.next_dequeue_at, r.channel_id
        from fairqueue.fq_channel_state r
        where r.queue = p_queue
          and r.next_dequeue_at is not null
          and (r.max_concurrency is null or r.current_concurrency < r.max_concurrency)
          and r.next_dequeue_at >= v_channel_floor
          and r.next_dequeue_at <= coalesce(v_bound, -1)
          and r.head_dequeue_at <= v_now
          and (fairqueue.fq_rate_allows_at(r.rate_at, r.rate_interval, r.rate_burst) <= v_now) is not false
        order by r.queue, r.next_dequeue_at, r.channel_id
      ) ready
      join fairqueue.fq_channel_state s
        on s.ctid = ready.row
        and s.row_version is not distinct from ready.row_version
        and s.channel_id is not distinct from ready.channel_id
      order by ready.next_dequeue_at, ready.channel_id
      limit 1
      for no key update of s skip locked;
      v_bare := not found;
    else
      select array_agg(o.row), array_agg(o.channel_id), array_agg(o.limited), array_agg(o.room),
        array_agg(o.head_dequeue_at), array_agg(o.head_message_id), array_agg(o.next_dequeue_at),
        array_agg(o.tag_rest), array_agg(o.weight), count(*), min(o.next_dequeue_at)
      into v_states, v_channels, v_limited, v_rooms, v_heads_at, v_head_ids, v_tags, v_rests, v_weights, v_found,
        v_first
      from (
        select s.ctid as row, s.channel_id, s.weight, s.next_dequeue_at, s.tag_rest, s.head_dequeue_at,
          s.head_message_id, s.max_concurrency is not null as limited,
          least(
            v_left,
            s.max_concurrency - s.current_concurrency,
            fairqueue.fq_rate_room(v_now, s.rate_at, s.rate_interval, s.rate_burst)
          )::integer as room
        from (
          select r.ctid as row, r.row_version, r.next_dequeue_at, r.channel_id
          from fairqueue.fq_channel_state r
          where r.queue = p_queue
            and r.next_dequeue_at is not null
            and (r.max_concurrency is null or r.current_concurrency < r.max_concurrency)
            and r.next_dequeue_at >= v_channel_floor
            and r.next_dequeue_at < 0
            and r.head_dequeue_at <= v_now
            and (fairqueue.fq_rate_allows_at(r.rate_at, r.rate_interval, r.rate_burst) <= v_now) is not false
          order by r.queue, r.next_dequeue_at, r.channel_id
        ) ready
        join fairqueue.fq_channel_state s
          on s.ctid = ready.row
          and s.row_version is not distinct from ready.row_version
          and s.channel_id is not distinct from ready.channel_id
        order by ready.next_dequeue_at, ready.channel_id
        limit v_width
        for no key update of s skip locked
      ) o;
      v_bare := v_found = 0;
    end if;
    if v_full then
      v_scan_cost := v_scan_cost + fairqueue.fq_now();
      -- a thirtieth of the time at most, and twice a minute at least
      v_full_at := v_now + least(30 * v_scan_cost, 30000000);
      v_full := false;
    end if;
    continue when v_bare;
    -- What others hold below the first one is in sight of the next call, too, until it has stood still for long.
    v_channel_floor := case when v_bound is null then v_first else least(v_first, v_first_tag) end;
    v_got_first := v_got_first or v_first = v_first_tag;
    -- What follows a plan that has changed gets the new values before anything is taken from it.
    if v_plans then
      if exists (
        select
        from fairqueue.fq_follow_plans(
          p_queue, (case when v_several then v_channels else array[v_channel_id] end)::bigint[]
        ) f
        where f.followed + f.deferred > 0
      ) then
        v_empty := v_empty + 1;
        continue;
      end if;
    end if;

    if v_lease_id is null then
      v_closed := not v_limited_queue and not fairqueue.fq_enter_gate(p_queue);
      exit when v_closed;
      -- Another consumer may be reclaiming this lease, and no message may be taken under it then: a locked lease counts
      -- as gone.
      select e.id, e.expires_at into v_lease_id, v_expires_at
      from fairqueue.fq_lease e
      where e.id = p_lease_id
        and e.queue = p_queue
        and e.expires_at >= v_now + p_lease
      for key share skip locked;
      v_new_lease := not found;
      if v_new_lease then
        v_lease_id := hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807;
        v_expires_at := v_now + p_lease + p_lease / 8;
      end if;
    end if;

    if not v_several then
      -- Others may hold channels that stand before it.
      v_room := least(v_room, case when v_first > v_first_tag and v_bound is not null then 1 else 4 end);
      v_cost := 0;
      v_got := 0;
      while v_got < v_room loop
        -- The new head is the least message that was not taken, even if another transaction has locked it. Its size is
        -- read too where one more message may be taken.
        update fairqueue.fq_message m
        set lease_id = v_lease_id,
          attempts = m.attempts + 1,
          deliveries = m.deliveries + 1,
          slots = case when v_has_limit then 1 else 0 end + case when v_limited_queue then 2 else 0 end,
          delivered_at = case when v_history then v_now end
        where m.ctid = (
            select x.ctid
            from fairqueue.fq_message x
            where x.channel_id = v_channel_id
              and x.lease_id is null
              and (x.dequeue_at, x.id) >= (v_head_at, v_head_id)
              and x.dequeue_at <= v_now
            order by x.channel_id, x.dequeue_at, x.id
            limit 1
            for no key update skip locked
          )
          and num_nulls(m.lease_id) = 1
          and (
            v_got = 0
            or fairqueue.fq_message_size(m.content::bytea, m.headers::jsonb) <= v_bytes_left
          ) is not false
        returning m.id, m.ctid, m.channel_id,
          (
            select c.name
            from fairqueue.fq_channel c
            where c.id = v_channel_id
          ),
          m.kind, m.content, m.headers, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries, m.cost,
          (
            select array[
              x.dequeue_at, x.id,
              case
                when v_got + 1 < v_room and p_max_bytes is not null then
                  fairqueue.fq_message_size(x.content::bytea, x.headers::jsonb)
              end
            ]
            from fairqueue.fq_message x
            where x.channel_id = v_channel_id
              and x.lease_id is null
              and (x.dequeue_at, x.id) >= (v_head_at, v_head_id)
              and x.id <> m.id
            order by x.channel_id, x.dequeue_at, x.id
            limit 1
          )
        into message_id, row_id, channel_id, channel, kind, content, headers, enqueued_at, attempt, max_attempts,
          deliveries, v_message_cost, v_next;
        exit when not found;
        return next;
        v_got := v_got + 1;
        v_head_at := v_next[1];
        v_head_id := v_next[2];
        v_cost := v_cost + case when v_by_cost then greatest(0, coalesce(v_message_cost, 1)) else 1 end;
        if v_limit > 1 and p_max_bytes is not null then
          v_bytes_left := v_bytes_left - fairqueue.fq_message_size(content::bytea, headers::jsonb);
        end if;
        exit when v_got = v_room or v_head_at is null or v_head_at > v_now;
        v_cut := (v_bytes_left <= 0 or v_next[3] > v_bytes_left) is true;
        exit when v_cut;
      end loop;
      if v_got > 0 then
        v_holds_slots := v_has_limit;
        v_left := v_left - v_got;
        v_bare := v_head_at is null or v_head_at > v_now;
        -- As fq_charge, whose start would cost more than its run.
        update fairqueue.fq_channel_state s
        set row_version = s.row_version + 1,
          current_concurrency = s.current_concurrency + case when s.max_concurrency is null then 0 else v_got end,
          backlog = fairqueue.fq_backlog_after(s.backlog, v_got, v_head_at, p_queue, v_count_floor),
          rate_at = greatest(s.rate_at, v_now) + v_got * s.rate_interval,
          head_dequeue_at = v_head_at,
          head_message_id = v_head_id,
          last_dequeue_at = v_now,
          tag = fairqueue.fq_tag_after(s.next_dequeue_at, s.tag_rest, v_cost, s.weight),
          tag_rest = fairqueue.fq_tag_rest(s.tag_rest, v_cost, s.weight, v_head_at),
          next_dequeue_at = fairqueue.fq_next_dequeue_at(
            fairqueue.fq_tag_after(s.next_dequeue_at, s.tag_rest, v_cost, s.weight), v_got, v_head_at, v_now,
            (greatest(s.rate_at, v_now) + v_got * s.rate_interval)::bigint, s.rate_interval, s.rate_burst,
            (s.current_concurrency + v_got < s.max_concurrency)::boolean
          )
        where s.ctid = v_state;
        exit when v_left = 0;
      end if;
      -- Where these find nothing, or not all, those for many decide.
      v_several := true;
      v_width := v_left;
      continue;
    end if;

    declare
      -- by message, in their order: where it is, which it is, of the how many-th channel, what it costs, its size
      v_rows tid[];
      v_ids bigint[];
      v_ords integer[];
      v_costs bigint[];
      v_sizes bigint[];
      v_locked bigint[];
      -- by channel: how many it gives (null: it is left alone), what they cost, its next head
      v_gots integer[];
      v_charges bigint[];
      v_next_heads_at bigint[];
      v_next_head_ids bigint[];
    begin
      v_passed := v_found < v_width and v_found < (
        select count(*)
        from (
          select
          from fairqueue.fq_channel_state r
          where r.queue = p_queue
            and r.next_dequeue_at is not null
            and (r.max_concurrency is null or r.current_concurrency < r.max_concurrency)
            and r.next_dequeue_at >= v_channel_floor
            and r.next_dequeue_at < 0
            and r.head_dequeue_at <= v_now
            and (fairqueue.fq_rate_allows_at(r.rate_at, r.rate_interval, r.rate_burst) <= v_now) is not false
          limit v_width
        ) x
      );
      if v_found = v_width or (v_passed and v_bound is not null) then
        v_upto := least(v_tags[v_found], case when v_passed then v_bound end);
      else
        v_upto := null;
      end if;
      -- While others may be ready beyond these channels, one message of each is read, otherwise twice as many as its
      -- part would be; and in each further pass twice as many.
      v_depth := case when v_upto is null then 2 * v_left / v_found + 2 else 1 end;
      v_depth := least(v_depth::bigint << v_pass, 100000);
      v_pass := least(v_pass + 1, 16);
      select c.rows, c.ids, c.ords, c.costs, c.sizes, c.gots, c.charges, c.next_heads_at, c.next_head_ids, c.is_cut
      into v_rows, v_ids, v_ords, v_costs, v_sizes, v_gots, v_charges, v_next_heads_at, v_next_head_ids, v_cut
      from fairqueue.fq_cut_batch(
        v_channels, v_heads_at, v_head_ids, v_rooms, v_tags, v_rests, v_weights, v_by_cost, v_upto, v_depth, v_left,
        v_bytes_left, (v_left = v_limit)::boolean, v_skip, v_now
      ) c;
      select array_agg(l.number order by l.number) into v_locked
      from (
        select u.number
        from unnest(v_rows, v_ids) with ordinality u(row, id, number)
        join fairqueue.fq_message x
          on x.ctid = u.row
          and x.id is not distinct from u.id
          and num_nulls(x.lease_id) = 1
        for no key update of x skip locked
      ) l;
      v_got := coalesce(cardinality(v_locked), 0);
      if v_got < cardinality(v_ids) then
        -- Others have messages of these locked: the next pass goes on behind them.
        v_skip := v_skip || v_ids;
        v_cut := false;
        select array_agg(v_rows[n]), array_agg(v_ords[n]), array_agg(v_costs[n]), array_agg(v_sizes[n])
        into v_rows, v_ords, v_costs, v_sizes
        from unnest(v_locked) n;
        for i in 1..v_found loop
          if v_gots[i] > 0 then
            v_gots[i] := null;
            v_charges[i] := 0;
          end if;
        end loop;
        for i in 1..v_got loop
          v_gots[v_ords[i]] := coalesce(v_gots[v_ords[i]], 0) + 1;
          v_charges[v_ords[i]] := v_charges[v_ords[i]] + v_costs[i];
        end loop;
      end if;

      if v_got > 0 then
        v_holds_slots := v_holds_slots or true = any(v_limited);
        v_bytes_left := v_bytes_left - (select sum(z.size) from unnest(v_sizes) z(size));
        v_cut := v_cut or (v_bytes_left <= 0) is true;
        -- They come back in the order in which they are updated.
        return query
        update fairqueue.fq_message m
        set lease_id = v_lease_id,
          attempts = m.attempts + 1,
          deliveries = m.deliveries + 1,
          slots = case when v_limited[u.ord] then 1 else 0 end + case when v_limited_queue then 2 else 0 end,
          delivered_at = case when v_history then v_now end
        from unnest(v_rows, v_ords) u(row, ord)
        where m.ctid = u.row
          and num_nulls(m.lease_id) = 1
        returning m.id, m.ctid, m.channel_id,
          (
            select c.name
            from fairqueue.fq_channel c
            where c.id = m.channel_id
          ),
          m.kind, m.content, m.headers, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries,
          null::bigint, null::bigint, null::bigint[], null::bigint, null::bigint;
      end if;
      if cardinality(v_skip) > 0 then
        select h.heads_at, h.head_ids into v_next_heads_at, v_next_head_ids
        from fairqueue.fq_find_heads(v_channels, v_heads_at, v_head_ids) h;
      end if;
      perform fairqueue.fq_charge(
        p_queue, v_states, v_gots, v_charges, v_next_heads_at, v_next_head_ids, v_now, v_count_floor
      );
      v_left := v_left - v_got;
      -- Channels that turned out to be empty must not hide the ready ones behind them: the next pass is wider.
      if v_got = 0 then
        v_empty := v_empty + 1;
        v_width := least(2 * v_width, 100000);
      else
        v_width := v_left;
      end if;
    end;
    if v_passed then
      -- What is left is for those who hold the others.
      due_in := v_first;
      exit;
    end if;
  end loop;

  if v_new_lease then
    if v_left < v_limit then
      insert into fairqueue.fq_lease (id, queue, consumer, expires_at)
      values (v_lease_id, p_queue, p_consumer, v_expires_at);
    else
      v_lease_id := p_lease_id;
      v_expires_at := null;
    end if;
  end if;

  if v_limited_queue then
    if v_queue_state is not null and v_left < v_limit then
      v_rate_at := greatest(v_rate_at, v_now) + (v_limit - v_left) * v_rate_interval;
      update fairqueue.fq_queue_state q
      set row_version = q.row_version + 1,
        current_concurrency = q.current_concurrency + v_limit - v_left,
        rate_at = v_rate_at
      where q.ctid = v_queue_state;
    end if;
    if v_drawn then
      declare
        v_contends boolean := v_left = 0 and v_limit < p_limit and exists (
          select
          from fairqueue.fq_channel_state s
          where s.queue = p_queue
            and s.next_dequeue_at is not null
            and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
            and s.next_dequeue_at >= v_channel_floor
            and s.next_dequeue_at <= v_now
        );
      begin
        v_drawn_due_at := fairqueue.fq_draw(p_queue, v_limits, (v_limit - v_left)::integer, v_contends);
        if v_contends then
          v_drawn_due_at := coalesce(v_drawn_due_at, v_now + 20000);
        end if;
      end;
    end if;
  end if;

  if v_left = 0 and v_limit = p_limit then
    -- all that it asked for
    due_in := 0;
  else
    declare
      c_longest constant bigint := 1000000;
      v_due_at bigint;
      v_rate_due_at bigint;
    begin
      if v_left = 0 and v_limit < p_limit then
        v_rate_due_at := fairqueue.fq_rate_allows_at(v_rate_at, v_rate_interval, v_rate_burst);
        v_rate_due_at := case when v_rate_due_at > v_now then v_rate_due_at end;
      end if;
      if v_paused then
        due_in := null;
      elsif v_closed then
        v_locked_first := 0;
        v_locked_since := case when p_hints[9] = 0 and p_hints[8] <= v_now then p_hints[8] else v_now end;
        due_in := greatest(10000, least(v_now - v_locked_since, c_longest));
      elsif v_limited_queue and v_queue_state is null then
        due_in := 10000;
      elsif v_empty = 32 or v_cut then
        due_in := 0;
      else
        -- At the queue's limit only its rate, or a lease that expires, brings something without a signal; a consumer
        -- that waits and holds nothing gives nothing back.
        select least(due_in, greatest(v_rate_due_at, v_drawn_due_at), e.expires_at) into due_in
        from (values (p_queue)) asked (name)
        left join lateral (
          select x.expires_at
          from fairqueue.fq_lease x
          where x.queue = asked.name
            and x.expires_at >= v_lease_floor
            and (x.waiting_until is null or x.waiting_until < x.expires_at)
          order by x.queue, x.expires_at
          limit 1
        ) e on true;
        v_due_at := due_in;
        due_in := case when due_in is not null then greatest(0, due_in - fairqueue.fq_now()) end;
      end if;
      if signals_after is not null or (v_heard < v_seen and v_limit > 0) then
        due_in := 0;
      end if;
      if due_in = 0 and v_left = v_limit and v_limit > 0 and v_empty < 32 and signals_after is null then
        -- A call of another consumer that served the channel would have moved it.
        v_locked_first := case when v_due_at <= v_now then v_due_at else v_first_signal end;
        v_locked_since := case
          when p_hints[9] = v_locked_first and p_hints[8] <= v_now then p_hints[8]
          else v_now
        end;
        due_in := least(v_now - v_locked_since, c_longest);
      end if;
      due_in := least(due_in, v_spread_in);
    end;
  end if;

  if v_locked_since is null and v_limit > 0 and v_first_tag is not null and not v_got_first then
    v_locked_first := v_first_tag;
    v_locked_since := v_still_since;
  end if;
  -- The row about the call must not repeat the columns of the message that was returned last, which may be large.
  message_id := null;
  content := null;
  headers := null;
  lease_id := v_lease_id;
  lease_expires_at := v_expires_at;
  hints := array[
    v_channel_floor, v_signal_floor, v_next_signal_floor, v_floor_xid, v_full_at, v_below_at,
    (v_holds_slots or v_limited_queue)::integer, v_locked_since, v_locked_first, v_lease_floor,
    ((v_fair_by = 'seconds') is true)::integer, v_results::integer, v_server
  ] || v_open;
  return next;
end
$$;
