-- Whether autovacuum runs on this server, and whether the server counts changed rows, by which autovacuum decides: one
-- row.
select
  current_setting('autovacuum')::boolean as autovacuum,
  current_setting('track_counts')::boolean as counts
