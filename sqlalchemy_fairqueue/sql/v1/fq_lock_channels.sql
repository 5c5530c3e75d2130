-- fq_lock_channels: lock the state rows of channels of a queue before verbs of one transaction that lock several of
-- them, or lock messages as well: existing ones in the order of their names, then new ones. p_policies: for each name
-- the policy with which a missing channel is made, if the queue has no defaults; null: a missing channel is passed
-- over.
-- Guarantees: until the transaction ends nobody else configures, pauses, resumes, purges or serves these channels.
-- Locks: the state rows, for no key update; waits for a dequeue that serves a channel (short), for a configuration of
-- it, and, to make a channel, for a transaction that is making the same one.
-- Index: fq_channel_queue_name_key, fq_channel_state_newest_ix. Errors: QF001 as fq_make_channels; 40001; QF007.
create function fairqueue.fq_lock_channels(p_queue text, p_names text[], p_policies jsonb[])
returns void
language plpgsql
security definer
as $$
declare
  r record;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  -- New channels come last, as they do if an enqueue makes a channel after the state rows were locked.
  for r in
    select u.name, u.policy, num_nulls(c.id) = 1 as is_new
    from unnest(p_names, p_policies) u(name, policy)
    left join lateral fairqueue.fq_find_channel(p_queue, u.name::text) c on true
    order by is_new, u.name collate "C"
  loop
    if r.is_new and r.policy is not null then
      perform fairqueue.fq_make_channels(p_queue, array[r.name]::text[], r.policy::jsonb);
    end if;
    perform fairqueue.fq_lock_state(c.id::bigint)
    from fairqueue.fq_find_channel(p_queue, r.name::text) c;
  end loop;
end
$$;
