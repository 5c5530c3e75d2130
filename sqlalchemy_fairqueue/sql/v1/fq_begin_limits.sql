-- fq_begin_limits: give channels their first max_concurrency or max_cost_out, by a plan, and count their leased
-- messages, which hold a slot from now on. p_rows, p_states, p_revisions: by channel its state row, which the caller has
-- locked, the row with the new policy, and the revision of the plan. Returns the channels that must wait, since another
-- transaction has a leased message of them locked: each is due again after the time that has passed since the plan
-- changed, 10 ms at least and a second at most. p_hearer: as fq_write_policies.
-- Guarantees: exact as fq_configure_channel: nobody takes further messages of the channels.
-- Locks: leased messages that hold no slot, for no key update and skip locked: it waits for none.
-- Index: fq_lease_expires_ix, fq_message_lease_ix; rows by ctid. Errors: none.
create function fairqueue.fq_begin_limits(
  p_queue text, p_rows tid[], p_states fairqueue.fq_channel_state[], p_revisions bigint[], p_hearer boolean
)
returns bigint[]
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_rows tid[];
  v_channels bigint[];
  v_costs bigint[];
  v_locked tid[];
  v_deferred bigint[];
  v_state fairqueue.fq_channel_state;
begin
  select array_agg(m.ctid), array_agg(m.channel_id), array_agg(fairqueue.fq_charged(m.charged, m.cost::integer))
  into v_rows, v_channels, v_costs
  from fairqueue.fq_lease e
  join fairqueue.fq_message m on m.lease_id = e.id
  where e.queue = p_queue
    and m.slots & 1 = 0
    and m.channel_id = any (array(select s.channel_id from unnest(p_states) s));
  v_locked := array(
    select m.ctid
    from unnest(v_rows) u(row)
    join fairqueue.fq_message m on m.ctid = u.row and num_nonnulls(m.lease_id) = 1
    for no key update of m skip locked
  );
  v_deferred := array(
    select distinct u.channel_id
    from unnest(v_rows, v_channels) u(row, channel_id)
    where u.row <> all (v_locked)
  );
  update fairqueue.fq_message m
  set slots = m.slots | 1
  from unnest(v_rows, v_channels) u(row, channel_id)
  where m.ctid = u.row
    and u.channel_id <> all (v_deferred);
  for i in 1..cardinality(p_rows) loop
    v_state := p_states[i];
    if v_state.channel_id = any (v_deferred) then
      update fairqueue.fq_channel_state s
      set row_version = s.row_version + 1,
        ready_tag = null,
        due_at = greatest(s.due_at, v_now + least(greatest(v_now - p_revisions[i], 10000), 1000000))
      where s.ctid = p_rows[i]
        and num_nonnulls(s.ready_tag, s.due_at) > 0;
      insert into fairqueue.fq_signal (queue, channel_id)
      select p_queue, v_state.channel_id
      where not p_hearer;
      continue;
    end if;
    select v_state.current_concurrency + count(*), v_state.current_cost + coalesce(sum(u.cost), 0)
    into v_state.current_concurrency, v_state.current_cost
    from unnest(v_channels, v_costs) u(channel_id, cost)
    where u.channel_id = v_state.channel_id;
    perform fairqueue.fq_write_policies(
      p_queue, p_rows[i:i]::tid[], array[v_state]::fairqueue.fq_channel_state[], p_hearer
    );
  end loop;
  return v_deferred;
end
$$;
