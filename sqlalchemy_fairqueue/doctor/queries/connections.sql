-- The sessions of the server, and how many it admits besides those that are reserved: one row. Reads statistics alone.
select
  (select coalesce(sum(d.numbackends), 0) from pg_stat_database d)::integer as used,
  current_setting('max_connections')::integer
    - current_setting('superuser_reserved_connections')::integer
    - coalesce(current_setting('reserved_connections', true), '0')::integer as most
