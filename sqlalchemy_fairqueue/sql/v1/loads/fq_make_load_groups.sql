-- fq_make_load_groups: make the groups that a stage names, after fq_merge has merged it in the same transaction, and
-- count their members. All groups get the same follow-ups, as fq_make_group takes them. Returns how many groups there
-- are.
-- Guarantees: the members of a group are those messages of the stage that fq_merge has created. The caller rolls back
-- unless fq_merge has merged.
-- Locks: none. Index: fq_group_pkey, fq_message_group_ix. Errors: QF001 bad follow-up, or a group is there already: its
-- messages are in two loads, or in two micro-batches of a stream; 42P01, 42501 as fq_find_stage; QF007.
create function fairqueue.fq_make_load_groups(
  p_queue text, p_stage text, p_attempts bigint[], p_on_failures boolean[], p_channels text[], p_kinds text[],
  p_contents bytea[], p_headers jsonb[], p_delays bigint[], p_ats bigint[], p_priorities integer[], p_keys text[],
  p_max_attempts integer[], p_ordering_keys text[], p_policy jsonb
)
returns bigint
language plpgsql
security definer
set work_mem = '64MB'
as $$
declare
  v_groups uuid[];
begin
  perform fairqueue.fq_check_grant(array['loader']::text[], p_queue, null::text[]);
  execute format(
    'select array_agg(distinct s.group_id) from %s s where s.attempt = any (%L::bigint[]) and s.group_id is not null',
    fairqueue.fq_find_stage(p_stage), p_attempts
  )
  into v_groups;
  perform fairqueue.fq_make_group(
    p_queue, g.group_id, p_on_failures, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities,
    p_keys, p_max_attempts, p_ordering_keys, p_policy
  )
  from unnest(v_groups) g(group_id);
  insert into fairqueue.fq_group_note (id, group_id, added)
  select 0, g.group_id, (select count(*) from fairqueue.fq_message m where m.group_id = g.group_id)
  from unnest(v_groups) g(group_id);
  return coalesce(cardinality(v_groups), 0);
end
$$;
