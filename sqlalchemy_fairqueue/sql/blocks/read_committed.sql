-- Raise unless the transaction sees what others commit.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'QF003',
      message = format('a step between versions must see what others have committed, and the transaction is %s; '
        'run the migration in READ COMMITTED: in env.py, connect with '
        'connectable.execution_options(isolation_level="READ COMMITTED")',
        upper(current_setting('transaction_isolation')));
  end if;
