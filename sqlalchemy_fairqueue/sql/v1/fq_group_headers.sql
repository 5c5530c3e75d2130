-- fq_group_headers: the headers of a group's follow-up: those that were asked for, and "after_group": the group's id
-- and counts.
-- Guarantees: one expression. Locks: none. Errors: none.
create function fairqueue.fq_group_headers(
  p_headers jsonb, p_group_id uuid, p_added bigint, p_done bigint, p_failed bigint, p_cancelled bigint
)
returns jsonb
language sql
immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(p_headers, '{}'::jsonb) || jsonb_build_object(
    'after_group',
    jsonb_build_object(
      'id', p_group_id,
      'total', p_added,
      'done', p_done,
      'failed', p_failed,
      'cancelled', p_cancelled
    )
  )
$$;
