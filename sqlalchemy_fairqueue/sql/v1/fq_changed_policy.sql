-- fq_changed_policy: a channel policy as JSON, with some fields changed. p_policy: the policy before (null: one without
-- limits); members that are no fields are ignored. p_changes: the fields to change (null: none); null as a value lifts
-- a limit. p_kind: the same for other fields, see fq_policy_fields.
-- Guarantees: refuses a policy that cannot be kept: each field is as fq_policy_fields says, and a whole burst takes at
-- most 365 days, so that no sum of times leaves the range of bigint.
-- Locks: none. Index: none. Errors: QF001.
create function fairqueue.fq_changed_policy(p_policy jsonb, p_changes jsonb, p_kind text default 'policy')
returns jsonb
language plpgsql
immutable
as $$
declare
  v_policy jsonb;
  v_names text;
  v_unknown text;
  v_wrong text;
  v_bounds text;
begin
  if jsonb_typeof(p_changes) <> 'object' then
    raise exception 'the changes of a % are %', p_kind, left(p_changes::text, 80)
      using errcode = 'QF001', hint = 'give a JSON object, such as {"max_backlog": 500}';
  end if;
  with changed as (
    select f.*, coalesce(p_changes -> f.name, p_policy -> f.name, f.initial) as value
    from fairqueue.fq_policy_fields(p_kind) f
  ),
  checked as (
    select c.*,
      case jsonb_typeof(c.value)
        when 'number' then scale(c.value::numeric) = 0 and c.value::numeric between c.minimum and c.maximum
        when 'boolean' then jsonb_typeof(c.initial) = 'boolean'
        when 'string' then c.value #>> '{}' = any (c.words)
        else c.value = c.initial
      end as is_kept
    from changed c
  )
  select jsonb_object_agg(k.name, k.value), string_agg(k.name, ', '),
    min(k.name || ' ' || left(k.value::text, 80)) filter (where k.is_kept is not true),
    string_agg(
      case
        when k.words is not null then k.name || ' is ' || array_to_string(k.words, ' or ')
        when k.minimum is null then k.name || ' is true or false'
        else format('%s is %s to %s%s', k.name, k.minimum, k.maximum, case when k.initial = 'null' then ' or null' end)
      end,
      ', '
    ) filter (where k.is_kept is not true)
  into v_policy, v_names, v_wrong, v_bounds
  from checked k;

  select min(n.name) into v_unknown
  from jsonb_object_keys(p_changes) n (name)
  where v_policy -> n.name is null;
  if v_unknown is not null then
    raise exception 'a % has no field %', p_kind, left(v_unknown, 80)
      using errcode = 'QF001', hint = 'its fields are ' || v_names;
  end if;
  if v_wrong is not null then
    raise exception 'a % has %', p_kind, v_wrong
      using errcode = 'QF001', hint = v_bounds;
  end if;
  if (v_policy -> 'rate_interval')::numeric * (v_policy -> 'rate_burst')::numeric > 31536000000000 then
    raise exception 'a % has rate_interval % and rate_burst %',
        p_kind, v_policy -> 'rate_interval', v_policy -> 'rate_burst'
      using errcode = 'QF001', hint = 'rate_interval (microseconds) times rate_burst is at most 365 days';
  end if;
  return v_policy;
end
$$;
