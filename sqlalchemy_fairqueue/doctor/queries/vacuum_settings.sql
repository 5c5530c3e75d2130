-- Whether autovacuum runs on this server, and counts the rows that it goes by: one row.
select
  current_setting('autovacuum')::boolean as autovacuum,
  current_setting('track_counts')::boolean as counts
