-- fq_make_channels: ids of the named channels of a queue, made where they are new.
-- Guarantees: one identity row and one state row a channel; a configured queue's policy goes before the one that the
-- caller brings. (A queue that was only paused, limited or told to record its history has no policy.)
-- Locks: first use of a channel waits for another transaction that is making the same one; names are taken in COLLATE
-- "C" order.
-- Index: fq_channel_queue_name_key. Errors: QF001 for a name that is empty or longer than 512 bytes; 40001 under
-- REPEATABLE READ and SERIALIZABLE when another transaction made the channel since the snapshot.
create function fairqueue.fq_make_channels(
  p_queue text,
  p_names text[],
  p_max_concurrency integer default null,
  p_rate_interval bigint default null,
  p_rate_burst integer default null,
  p_weight integer default null,
  p_max_backlog integer default null,
  p_drop_when_full boolean default null
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_queue fairqueue.fq_queue;
begin
  perform fairqueue.fq_check_names(p_queue || p_names);

  select * into v_queue
  from fairqueue.fq_queue q
  where q.name = p_queue
    and q.has_defaults;
  if not found then
    v_queue.default_max_concurrency := p_max_concurrency;
    v_queue.default_rate_interval := coalesce(p_rate_interval, 0);
    v_queue.default_rate_burst := coalesce(p_rate_burst, 1);
    v_queue.default_weight := coalesce(p_weight, 1);
    v_queue.default_max_backlog := p_max_backlog;
    v_queue.default_drop_when_full := coalesce(p_drop_when_full, false);
    perform fairqueue.fq_check_policy(
      v_queue.default_max_concurrency, v_queue.default_rate_interval, v_queue.default_rate_burst,
      v_queue.default_weight, v_queue.default_max_backlog
    );
  end if;

  with made as (
    insert into fairqueue.fq_channel (queue, name)
    select p_queue, w.name
    from (
      select distinct n collate "C" as name
      from unnest(p_names) n
      order by 1
    ) w
    on conflict (queue, name) do nothing
    returning id
  )
  insert into fairqueue.fq_channel_state (
    channel_id, queue, max_concurrency, rate_interval, rate_burst, weight, max_backlog, drop_when_full
  )
  select m.id, p_queue, v_queue.default_max_concurrency, v_queue.default_rate_interval, v_queue.default_rate_burst,
    v_queue.default_weight, v_queue.default_max_backlog, v_queue.default_drop_when_full
  from made m;
end
$$;
