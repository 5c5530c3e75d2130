-- fq_make_channels: make those of the named channels of a queue that are missing.
-- Guarantees: none of them is marked to be forgotten any more. A new channel has one identity row and one state row,
-- with the first of: the queue's default plan, which it follows; the queue's defaults; p_policy (fields as
-- fq_changed_policy takes them; null: without limits).
-- Locks: first use of a channel waits for another transaction that is making the same one; names are taken in
-- COLLATE "C" order.
-- Index: fq_channel_queue_name_key, fq_plan_pkey. Errors: QF001 for a bad policy, a name that is empty or longer than
-- 512 bytes, or a channel whose state row somebody has deleted; 40001 under REPEATABLE READ and SERIALIZABLE when
-- another transaction made the channel since the snapshot.
create function fairqueue.fq_make_channels(p_queue text, p_names text[], p_policy jsonb default null)
returns void
language plpgsql
as $$
declare
  v_names text[] := array(select distinct n collate "C" from unnest(p_names) n order by 1);
  v_defaults jsonb;
  v_policy jsonb;
  v_rows tid[];
  v_states fairqueue.fq_channel_state[];
  v_channel_id bigint;
  v_name text;
  v_is_lost boolean;
  v_plan text;
  v_revision bigint;
begin
  perform fairqueue.fq_check_names('{queue,channel}'::text[], (p_queue || p_names)::text[]);
  select coalesce(n.policy, q.defaults), n.name, n.revision into v_defaults, v_plan, v_revision
  from fairqueue.fq_queue q
  left join fairqueue.fq_plan n on n.queue = q.name and n.name = q.default_plan
  where q.name = p_queue;
  v_policy := fairqueue.fq_changed_policy(
    v_defaults, (case when v_defaults is null then p_policy end)::jsonb, 'policy'::text
  );

  -- Wait for a transaction that deletes the channel; it is made anew below.
  for v_channel_id, v_name, v_is_lost in
    select c.id, w.name, s.channel_id is null
    from unnest(v_names) w(name)
    cross join lateral fairqueue.fq_find_channel(p_queue, w.name::text) c
    left join lateral fairqueue.fq_newest_state(c.id::bigint) s on true
    where num_nulls(s.channel_id) = 1
      or num_nonnulls(s.forget_xid) = 1
    order by w.name collate "C"
  loop
    if v_is_lost then
      raise exception 'channel % of queue % has no state row', fairqueue.fq_shown(v_name), fairqueue.fq_shown(p_queue)
        using errcode = 'QF001',
          hint = 'somebody has deleted it: insert it again, and a signal that names the first message of the channel';
    end if;
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      forget_xid = null,
      used_at = fairqueue.fq_now()
    where s.channel_id = v_channel_id
      and s.forget_xid is not null;
  end loop;

  with made as (
    insert into fairqueue.fq_channel (queue, name)
    select p_queue, w.name
    from unnest(v_names) with ordinality w(name, ord)
    order by w.ord
    on conflict (queue, name) do nothing
    returning id
  ),
  following as (
    insert into fairqueue.fq_channel_plan (channel_id, queue, plan, revision)
    select m.id, p_queue, v_plan, v_revision
    from made m
    where v_plan is not null
  ),
  added as (
    insert into fairqueue.fq_channel_state as s (channel_id, queue, used_at)
    select m.id, p_queue, fairqueue.fq_now()
    from made m
    returning s.ctid as row, jsonb_populate_record(s.*, v_policy) as state
  )
  select array_agg(a.row), array_agg(a.state) into v_rows, v_states
  from added a
  -- other rows have the initial values already
  where v_policy <> fairqueue.fq_changed_policy(null::jsonb, null::jsonb, 'policy'::text);
  perform fairqueue.fq_write_policies(p_queue, v_rows, v_states, true::boolean)
  where num_nonnulls(v_rows) = 1;
end
$$;
