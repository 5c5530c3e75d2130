-- Version and state of the server: one row.
-- read_only is the setting of the session (reset_val): the checks themselves run in read-only transactions.
select
  current_setting('server_version') as version,
  current_setting('server_version_num')::integer as number,
  pg_is_in_recovery() as standby,
  (
    select s.reset_val = 'on'
    from pg_settings s
    where s.name = 'default_transaction_read_only'
  ) as read_only,
  pg_notification_queue_usage() as notifications
