-- fq_reset_fields: the fields of a channel's policy that changes put back to what its plan says, or without a plan to
-- what new channels start with: those of the member reset of p_changes, an array of names. The interval and the burst
-- of a rate are put back together.
-- Locks: none. Index: none. Errors: QF001 it is no array of names of fields.
create function fairqueue.fq_reset_fields(p_changes jsonb)
returns text[]
language plpgsql
immutable
as $$
declare
  c_rate constant text[] := array['rate_interval', 'rate_burst'];
begin
  if (p_changes ? 'reset') is not true then
    return '{}';
  end if;
  if jsonb_typeof(p_changes -> 'reset') <> 'array'
    or not fairqueue.fq_changed_policy(null::jsonb, null::jsonb) ?& array(
      select jsonb_array_elements_text(p_changes -> 'reset')
      where jsonb_typeof(p_changes -> 'reset') = 'array'
    )
  then
    raise exception 'the fields to reset are %', left(p_changes ->> 'reset', 200)
      using errcode = 'QF001', hint = 'give an array of names of fields of a policy, such as ["weight"]';
  end if;
  return array(
    select jsonb_array_elements_text(p_changes -> 'reset')
    union
    select unnest(c_rate)
    where p_changes -> 'reset' ?| c_rate
  );
end
$$;
