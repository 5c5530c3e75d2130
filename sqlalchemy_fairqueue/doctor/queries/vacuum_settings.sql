-- Whether autovacuum runs on this server, and whether the rows by which it decides are counted: one row.
select
  current_setting('autovacuum')::boolean as autovacuum,
  current_setting('track_counts')::boolean as counts
