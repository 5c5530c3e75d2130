-- fq_set_queue: change settings of a queue, in the caller's transaction. p_settings: those to change, as a JSON object
-- with the names of their columns in fq_queue, which says what each means. Times are in microseconds; null: 30 days for
-- history_retention, no results for result_retention, else for ever. fair_by: what channels get equal parts of:
-- 'messages', their 'cost', or the 'seconds' that workers tell. defaults: fields of the policy of new channels to
-- change, as fq_changed_policy takes them; p_policy: what they change, if the queue has none yet.
-- Guarantees: holds for what dequeues after the commit begin. When fair_by changes, channels get into the new order as
-- they are served. The locked row is changed, so concurrent changes of different settings, kinds or fields all last.
-- Locks: the queue's row, then the plan's for key share; waits for another configuration of the queue, and for a removal
-- of the plan. Index: fq_queue_pkey, fq_plan_pkey. Errors: QF001 bad name or value, no such plan, more than 1,000 kinds;
-- 40001; QF007.
create function fairqueue.fq_set_queue(p_queue text, p_settings jsonb, p_policy jsonb default null)
returns void
language plpgsql
security definer
as $$
declare
  c_most constant integer := 1000;
  v_by_kind jsonb := coalesce(p_settings -> 'dead_letter_retention_by_kind', '{}');
  v_new fairqueue.fq_queue;
  v_kinds bigint;
begin
  perform fairqueue.fq_lock_queue(p_queue, false::boolean);
  if jsonb_typeof(p_settings) is distinct from 'object' or jsonb_typeof(v_by_kind) <> 'object' then
    raise exception 'the settings of a queue are %', left(p_settings::text, 80)
      using errcode = 'QF001', hint = 'give a JSON object, such as {"history": true}';
  end if;
  perform fairqueue.fq_check_names('{kind}'::text[], array(select jsonb_object_keys(v_by_kind))::text[]);
  perform fairqueue.fq_changed_policy(
    null::jsonb, jsonb_build_object('dead_letter_retention', k.value)::jsonb, 'queue'::text
  )
  from jsonb_each(v_by_kind) k;
  if p_settings ->> 'default_plan' is not null then
    perform fairqueue.fq_lock_plans(p_queue, null::text[], array[p_settings ->> 'default_plan']::text[]);
    if not exists (
      select from fairqueue.fq_plan n where n.queue = p_queue and n.name = p_settings ->> 'default_plan'
    ) then
      raise exception 'queue % has no plan %', left(p_queue, 80), left(p_settings ->> 'default_plan', 80)
        using errcode = 'QF001', hint = 'make it first: queue.plans.configure(where, name, ...)';
    end if;
  end if;
  select q.* into v_new
  from fairqueue.fq_queue q
  where q.name = p_queue;
  v_new := jsonb_populate_record(
    v_new,
    p_settings - 'defaults' || fairqueue.fq_changed_policy(
      to_jsonb(v_new)::jsonb,
      (p_settings - array['defaults', 'dead_letter_retention_by_kind', 'default_plan', 'on_dead_kinds'])::jsonb,
      'queue'::text
    )
  );
  if p_settings ? 'defaults' then
    v_new.defaults := fairqueue.fq_changed_policy(
      coalesce(v_new.defaults, fairqueue.fq_changed_policy(null::jsonb, p_policy, 'policy'::text))::jsonb,
      (p_settings -> 'defaults')::jsonb, 'policy'::text
    );
  end if;
  update fairqueue.fq_queue q
  set defaults = v_new.defaults,
    history = v_new.history,
    history_retention = v_new.history_retention,
    dead_letter_retention = v_new.dead_letter_retention,
    dead_letter_retention_by_kind = nullif(
      jsonb_strip_nulls(coalesce(q.dead_letter_retention_by_kind, '{}') || v_by_kind), '{}'
    ),
    result_retention = v_new.result_retention,
    forget_channels_after = v_new.forget_channels_after,
    fair_by = v_new.fair_by,
    default_plan = v_new.default_plan,
    on_dead = v_new.on_dead,
    on_dead_kinds = v_new.on_dead_kinds
  where q.name = p_queue
  returning (
    select count(*)
    from jsonb_object_keys(q.dead_letter_retention_by_kind)
  )
  into v_kinds;
  if v_kinds > c_most then
    raise exception 'queue % has a retention of dead letters for % kinds', p_queue, v_kinds
      using errcode = 'QF001', hint = 'set one for at most 1000 kinds, and one for all others';
  end if;
end
$$;
