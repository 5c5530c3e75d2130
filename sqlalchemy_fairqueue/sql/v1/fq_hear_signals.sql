-- fq_hear_signals: apply up to p_limit unheard signals of a queue to the states of their channels, and delete them:
-- signals of transactions from p_below on, and of p_open, in the order of the transactions. p_virtual_time: where a
-- channel that becomes ready stands at the earliest, so that it saves nothing up while it is idle. p_noting: the caller
-- will note below and open, so signals of locked channels are put back (fq_put_back); p_by_cost: as fq_hear_one.
-- Returns heard: signals applied; seen: signals read; freed, freed_cost: slots of the queue that they free, and the
-- cost of their messages; costs: what messages cost more than was charged; first_due: the least due_at that this gives
-- a channel; below, open: the next p_below and p_open (null: as before); has_more: the next messages of ordering keys
-- were let go, by signals that the next call hears.
-- Guarantees: a signal is applied and deleted while this call has the channel's state row locked, or put back if
-- somebody else has. All signals of transactions below the next p_below are heard, but for those in open. The caller's
-- own transaction may be in open, since it may leave signals later. If all channels are locked, nothing is written.
-- Locks: state rows for no key update, skip locked; the signals. The caller has the dispatch row locked.
-- Index: fq_signal_pkey, fq_channel_state_newest_ix; rows by ctid. Errors: none.
create function fairqueue.fq_hear_signals(
  p_queue text, p_below xid8, p_open xid8[], p_limit integer, p_by_cost boolean, p_virtual_time bigint, p_now bigint,
  p_noting boolean,
  out heard integer, out seen integer, out freed bigint, out freed_cost bigint, out costs bigint, out first_due bigint,
  out below xid8, out open xid8[], out has_more boolean
)
language plpgsql
as $$
declare
  v_rows tid[];
  v_ids bigint[];
  v_channels bigint[];
  v_last xid8;
  v_snapshot pg_snapshot;
  v_left integer;
  v_freeing boolean;
  v_key_channels bigint[];
  v_ordering_keys text[];
  h record;
begin
  heard := 0;
  has_more := false;
  select array_agg(s.row), array_agg(s.id), array_agg(s.channel_id), count(*), max(s.xid), sum(s.queue_freed) > 0,
    pg_current_snapshot(), array_agg(s.channel_id) filter (where s.ordering_key is not null),
    array_agg(s.ordering_key) filter (where s.ordering_key is not null)
  into v_rows, v_ids, v_channels, seen, v_last, v_freeing, v_snapshot, v_key_channels, v_ordering_keys
  from (
    select c.*
    from (
      select l.*
      from unnest(p_open) u(xid)
      cross join lateral (
        select g.ctid as row, g.xid, g.id, g.channel_id, g.queue_freed, g.ordering_key
        from fairqueue.fq_signal g
        where g.queue = p_queue
          and g.xid = u.xid
        order by g.queue, g.xid, g.id
        limit p_limit
      ) l
      where u.xid < p_below
      union all
      (
        select g.ctid, g.xid, g.id, g.channel_id, g.queue_freed, g.ordering_key
        from fairqueue.fq_signal g
        where g.queue = p_queue
          and g.xid >= p_below
        order by g.queue, g.xid, g.id
        limit p_limit
      )
      order by xid, id
      limit p_limit
    ) c
    order by c.channel_id
  ) s;
  p_noting := p_noting or seen >= 100;
  if seen = 1 and not v_freeing then
    h := fairqueue.fq_hear_one(
      v_rows[1]::tid, v_ids[1]::bigint, v_channels[1]::bigint, p_by_cost, p_virtual_time, p_now
    );
    v_left := 1 - h.heard;
  elsif seen > 0 then
    h := fairqueue.fq_hear_many(
      p_queue, v_rows, v_ids, v_channels, p_by_cost, p_virtual_time, p_now, p_noting,
      (v_freeing or seen = p_limit)::boolean
    );
    v_left := h.seen - h.heard;
  end if;
  if seen > 0 then
    heard := h.heard;
    freed := h.freed;
    freed_cost := h.freed_cost;
    costs := h.costs;
    first_due := h.first_due;
  end if;
  if v_ordering_keys is not null then
    has_more := fairqueue.fq_let_go(p_queue, v_key_channels, v_ordering_keys, p_now);
  end if;
  if p_noting and (v_left > 0) is not true then
    -- Transactions from the snapshot's xmax on can be open, and it does not name them.
    below := greatest(
      p_below,
      case when seen < p_limit then least(pg_current_xact_id(), pg_snapshot_xmax(v_snapshot)) else v_last end
    );
    open := array(
      select x.xid
      from pg_snapshot_xip(v_snapshot) x(xid)
      where x.xid < below
      union
      select pg_current_xact_id()
      where pg_current_xact_id() < below
      union
      select x.xid
      from unnest(p_open) x(xid)
      where seen = p_limit
        and x.xid >= v_last
    );
  end if;
end
$$;
