-- fq_now: the database's clock, in microseconds since the epoch.
-- Guarantees: the time of the call, not of the transaction. With milliseconds, two channels that are served in the same
-- one would tie, and the one with the lower id would win each time. Locks: none. Errors: none.
create function fairqueue.fq_now()
returns bigint
language sql
volatile parallel safe
as $$
  select (pg_catalog.date_part('epoch'::text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
$$;
