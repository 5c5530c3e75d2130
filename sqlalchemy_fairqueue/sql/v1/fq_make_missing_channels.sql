-- fq_make_missing_channels: make channels that do not exist, before messages without keys are added to them. Returns
-- whether the messages must be added one by one, because fq_takes_any is false of a channel; null: none of the channels
-- has a state row. Its callers set how its statements are planned: to set it again would take longer than the call.
-- Locks: as fq_make_channels. Index: fq_channel_queue_name_key, fq_channel_state_newest_ix. Errors: as
-- fq_make_channels.
create function fairqueue.fq_make_missing_channels(
  p_queue text, p_channels text[], p_policy jsonb, p_priorities integer[]
)
returns boolean
language plpgsql
as $$
declare
  v_new text[];
  v_prioritised boolean := num_nonnulls(variadic p_priorities) > 0;
  v_one_by_one boolean;
begin
  for v_pass in 1..2 loop
    select array_agg(w.name) filter (where known.id is null), bool_or(known.one_by_one) into v_new, v_one_by_one
    from (
      select distinct n collate "C" as name
      from unnest(p_channels) n
    ) w
    left join lateral (
      select c.id,
        (select not fairqueue.fq_takes_any(n.*, v_prioritised) from fairqueue.fq_newest_state(c.id::bigint) n) as one_by_one
      from fairqueue.fq_find_channel(p_queue, w.name::text) c
    ) known on true;
    exit when v_new is null;
    perform fairqueue.fq_make_channels(p_queue, v_new, p_policy);
  end loop;
  return v_one_by_one;
end
$$;
