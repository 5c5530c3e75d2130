-- fq_policy_of: the policy of a channel as a JSON object, from its state.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_policy_of(p_state fairqueue.fq_channel_state)
returns jsonb
language sql
immutable
as $$
  select jsonb_object_agg(f.name, j.state -> f.name)
  -- converted once
  from (select to_jsonb(p_state) as state offset 0) j
  cross join fairqueue.fq_policy_fields() f
$$;
