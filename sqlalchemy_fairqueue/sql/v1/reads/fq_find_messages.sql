-- fq_find_messages: a page of up to p_limit ids of messages of a queue that are not settled, with their places. Of a
-- channel: first the leased ones (step 1, by id), then the undelivered ones in the order of delivery (step 2, by at and
-- id). Of the whole queue: all by id (step 3), or with p_state 'leased' those (step 4). p_step, p_at, p_message_id: step,
-- at and last_id of the last row of the page before.
-- Guarantees: one snapshot. If there may be more, the last row has no message_id, and says where to go on: at most
-- p_scan messages are looked at. A message that keeps its step and place is on one page and no other. A message whose
-- kind cannot be read has none. Cost: what is looked at; of steps 1 and 4 the queue's leased messages. Locks: none.
-- Index: fq_message_ready_ix, fq_message_pkey, fq_lease_expires_ix, fq_message_lease_ix, those of fq_message_state.
-- Errors: QF001 bad limit or state; QF007.
create function fairqueue.fq_find_messages(
  p_queue text, p_channel text, p_state text, p_kind text, p_step integer, p_at bigint, p_message_id bigint,
  p_limit integer, p_scan integer
)
returns table (message_id bigint, step integer, at bigint, last_id bigint)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_step integer := coalesce(p_step, 0);
  v_after bigint := coalesce(p_message_id, 0);
  -- Positions of undelivered messages: that of held ones, which is the last, and where the page begins.
  v_end bigint := 9223372036854775807;
  v_from bigint := case when v_step = 2 then p_at else -v_end end;
  v_channel_id bigint;
  v_found integer := 0;
  v_scanned integer := 0;
  r record;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if (least(p_limit, p_scan) >= 1) is not true or num_nulls(p_limit, p_scan) > 0
    or p_state not in ('leased', 'ready', 'held', 'scheduled')
  then
    raise exception 'fq_find_messages has limit %, scan %, state %', p_limit, p_scan, quote_nullable(left(p_state, 80))
      using errcode = 'QF001', hint = 'ask for 1 message or more, of state leased, ready, held, scheduled or null; let '
          '1 or more be looked at';
  end if;
  v_channel_id := (select c.id from fairqueue.fq_channel c where c.queue = p_queue and c.name = p_channel);
  if v_channel_id is null and p_channel is not null then
    return;
  end if;
  for r in
    (
      select m.id, case when p_channel is null then 4 else 1 end as step, m.dequeue_at, m.lease_id, true as ours
      from fairqueue.fq_lease e
      join fairqueue.fq_message m on m.lease_id = e.id
      where (p_state = 'leased' or (p_state is null and p_channel is not null))
        and v_step <> 2
        and e.queue = p_queue
        and (v_channel_id is null or m.channel_id = v_channel_id)
        and m.id > v_after
      order by m.id + 0
      limit p_scan
    )
    union all
    (
      select m.id, 2, m.dequeue_at, m.lease_id, true
      from (
        values (-v_end, v_now, true), (v_now + 1, v_end - 1, false), (v_end, v_end, true)
      ) b(least, most, is_due)
      cross join lateral (
        select x.id, x.dequeue_at, x.lease_id
        from fairqueue.fq_message x
        where x.channel_id = v_channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) > (v_from, case when v_step = 2 then v_after else 0 end)
          and x.dequeue_at between greatest(b.least, v_from) and b.most
        order by x.channel_id, x.dequeue_at, x.id
        limit p_scan
      ) m
      where p_state is distinct from 'leased'
        and (p_state = 'scheduled') is distinct from b.is_due
    )
    union all
    (
      select m.id, 3, m.dequeue_at, m.lease_id,
        (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
      from fairqueue.fq_message m
      where p_channel is null
        and p_state is distinct from 'leased'
        and m.id > v_after
      order by m.id
      limit p_scan
    )
  loop
    if v_found = p_limit or v_scanned = p_scan then
      -- The next page begins behind the message that was looked at last.
      message_id := null;
      return next;
      return;
    end if;
    v_scanned := v_scanned + 1;
    step := r.step;
    at := r.dequeue_at;
    last_id := r.id;
    if r.ours
      and (
        p_state is null
        or fairqueue.fq_message_state(r.id::bigint, r.lease_id::bigint, r.dequeue_at::bigint, v_now) = p_state
      )
      and (p_kind is null or fairqueue.fq_kind(r.id::bigint) = p_kind)
    then
      message_id := r.id;
      v_found := v_found + 1;
      return next;
    end if;
  end loop;
  if v_scanned = p_scan then
    message_id := null;
    return next;
  end if;
end
$$;
