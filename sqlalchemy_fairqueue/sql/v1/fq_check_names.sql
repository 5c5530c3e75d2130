-- fq_check_names: refuse names of queues, channels and the like that do not have 1 to 512 bytes, which an index could
-- not keep. p_arguments: what each name is, for the error; the last element holds for all names from there on.
-- Locks: none. Index: none. Errors: QF001.
create function fairqueue.fq_check_names(p_arguments text[], p_names text[])
returns void
language plpgsql
immutable
as $$
declare
  v_argument text;
  v_bad text;
begin
  select p_arguments[least(u.ord, cardinality(p_arguments))], u.name into v_argument, v_bad
  from unnest(p_names) with ordinality u(name, ord)
  where (octet_length(u.name) between 1 and 512) is not true
  order by u.ord
  limit 1;
  if found then
    raise exception '% is %', v_argument, fairqueue.fq_shown(v_bad)
      using errcode = 'QF001', hint = format('give a %s of 1 to 512 bytes of UTF-8', v_argument);
  end if;
end
$$;
