-- fq_schedule_headers: the headers of a message that a schedule enqueues: those that were asked for, "schedule": its
-- name, and "scheduled_for": the slot, as an ISO 8601 time in UTC.
-- Guarantees: one expression. Locks: none. Errors: none.
create function fairqueue.fq_schedule_headers(p_headers jsonb, p_name text, p_slot bigint)
returns jsonb
language sql
stable parallel safe
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
  select coalesce(p_headers, '{}'::jsonb) || jsonb_build_object(
    'schedule', p_name,
    'scheduled_for',
    to_char(timestamptz 'epoch' + p_slot * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US+00:00')
  )
$$;
