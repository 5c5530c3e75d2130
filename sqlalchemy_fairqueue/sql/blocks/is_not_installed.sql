-- Raise if an installation is there.
  if to_regprocedure(format('%I.fq_version()', v_schema)) is not null
    and to_regclass(format('%I.fq_message', v_schema)) is not null then
    raise exception using errcode = 'QF004',
      message = format('fairqueue is installed in schema %I already; '
        'take this op.create_fairqueue() away, or name another schema', v_schema);
  end if;
