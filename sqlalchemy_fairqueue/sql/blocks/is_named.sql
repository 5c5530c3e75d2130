-- Raise if an installation has lost its fq_version().
  if v_nameless then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds fairqueue, and its function fq_version() is gone; '
        'bring it back with op.repair_fairqueue(), given the version that was installed', v_schema);
  end if;
