-- fq_tag_heard: the new tag and tag_rest of a channel after its dispatcher heard that its messages cost p_cost more (or
-- less) than they were charged. p_ready_tag: its tag if it was ready (null: it was not); p_is_ready: it is ready from
-- now on; p_virtual_time: of the queue (null: unknown).
-- Guarantees: a channel that becomes ready starts at the virtual time at the earliest, so that it saves nothing up
-- while it is idle. A ready channel moves back to the virtual time at most. What it should have moved further is a
-- credit (a rest below zero): the channel is served first until it has used that up, and a newcomer has no part in it.
-- Locks: none. Errors: none.
-- Source: virtual token counter (Sheng et al. 2024), for costs that are known late.
create function fairqueue.fq_tag_heard(
  p_ready_tag bigint, p_tag bigint, p_rest bigint, p_weight integer, p_cost bigint, p_is_ready boolean,
  p_virtual_time bigint, out tag bigint, out rest bigint
)
language plpgsql
immutable
as $$
declare
  v_weight bigint := greatest(1, p_weight);
  v_tag bigint := greatest(-9000000000000000000, least(coalesce(p_tag, p_virtual_time, -9000000000000000000), -1));
  v_charge bigint := greatest(-100000000000000, least(coalesce(p_cost, 0), 100000000000000)) * 2520
    + greatest(-1000000000000000000, least(coalesce(p_rest, 0), 1000000000000000000));
begin
  rest := (v_charge % v_weight + v_weight) % v_weight;
  -- The sum itself must not leave the range.
  tag := v_tag + greatest(-9000000000000000000 - v_tag, least((v_charge - rest) / v_weight, -1 - v_tag));
  if p_is_ready and p_ready_tag is not null then
    tag := greatest(tag, least(v_tag, p_virtual_time));
    rest := v_charge - (tag - v_tag) * v_weight;
  elsif p_is_ready then
    tag := greatest(tag, p_virtual_time);
  end if;
end
$$;
