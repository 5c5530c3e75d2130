-- fq_configure_channel: set the policy of one channel, made if it is new, in the caller's transaction.
-- Guarantees: takes effect on the next dequeue after the commit and breaks no limit: messages that are out are counted when a limit is set,
-- and each frees what its own row says it holds, so that the count is right however the limit is set, lowered and lifted.
-- Locks: the channel's state row, then its leased messages in the order of their ids; waits for whoever has one. Until the commit the
-- channel is not served (dequeue passes by), and nobody waits for it.
-- Index: fq_channel_state_newest_ix, fq_message_lease_ix. Errors: QF001 bad policy or name; 40001.
create function fairqueue.fq_configure_channel(
  p_queue text, p_channel text, p_max_concurrency integer, p_release_interval bigint, p_release_burst integer, p_weight integer
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_channel_id bigint;
  v_row tid;
  v_marked integer := 0;
begin
  perform fairqueue.fq_check_policy(p_max_concurrency, p_release_interval, p_release_burst, p_weight);
  perform fairqueue.fq_make_channels(p_queue, array[p_channel]);
  select c.id into strict v_channel_id
  from fairqueue.fq_channel c
  where c.queue = p_queue
    and c.name = p_channel;
  select s.ctid into strict v_row
  from fairqueue.fq_channel_state s
  where s.channel_id = v_channel_id
  order by s.channel_id desc, s.turn desc
  limit 1
  for no key update;

  if p_max_concurrency is not null then
    -- By an expression: for the bare id a plan of the empty tables reads all messages in the order of their key.
    perform
    from fairqueue.fq_message m
    where m.lease_id is not null
      and m.channel_id = v_channel_id
      and m.slots = 0
    order by m.id + 0
    for no key update;
    -- A new statement, which sees what was waited for.
    update fairqueue.fq_message m
    set slots = 1
    where m.lease_id is not null
      and m.channel_id = v_channel_id
      and m.slots = 0;
    get diagnostics v_marked = row_count;
  end if;

  update fairqueue.fq_channel_state s
  set turn = s.turn + 1,
    max_concurrency = p_max_concurrency,
    release_interval = p_release_interval,
    release_burst = p_release_burst,
    weight = p_weight,
    current_concurrency = s.current_concurrency + v_marked,
    credit = least(s.credit, p_weight),
    release_at = n.release_at,
    next_dequeue_at = case
      when s.next_dequeue_at is null then null
      when s.next_dequeue_at <= v_now then greatest(s.next_dequeue_at, n.released_at)
      else greatest(s.head_dequeue_at, s.last_dequeue_at, n.released_at)
    end
  from (
    select r.release_at, case when p_release_interval > 0 then r.release_at - (p_release_burst - 1) * p_release_interval end as released_at
    from (
      select least(o.release_at, v_now + p_release_burst * p_release_interval) as release_at
      from fairqueue.fq_channel_state o
      where o.ctid = v_row
    ) r
  ) n
  where s.ctid = v_row
    and s.channel_id = v_channel_id;
end
$$;
