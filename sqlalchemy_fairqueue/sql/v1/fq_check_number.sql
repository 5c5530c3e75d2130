-- fq_check_number: refuse a number that is null, below p_least or above p_most (null: none is too great). p_said: the
-- function and the argument, for the error.
-- Locks: none. Index: none. Errors: QF001.
create function fairqueue.fq_check_number(p_said text, p_value bigint, p_least bigint, p_most bigint)
returns void
language plpgsql
stable
as $$
begin
  if p_value >= p_least and (p_value <= p_most) is not false then
    return;
  end if;
  raise exception '% %', p_said, coalesce(p_value::text, 'null')
    using errcode = 'QF001', hint = format('give %s or more', p_least) || coalesce(', up to ' || p_most, '');
end
$$;
