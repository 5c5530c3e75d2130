-- fq_growth: how the largest tables grew within the last day, as far as fq_keep_samples has noted: the bytes of each, those
-- that it grew by, negative if it shrank, and within how many microseconds.
-- Guarantees: no row of a table that is kept for one hour alone, or is no longer among the largest. Cost: ten rows an
-- hour of the last day. Locks: none. Index: fq_size_pkey. Errors: none.
create function fairqueue.fq_growth()
returns table (name text, bytes bigint, grown bigint, period bigint)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_last bigint := (select max(s.at) from fairqueue.fq_size s);
begin
  return query
  select l.name, l.bytes, l.bytes - f.bytes, l.at - f.at
  from fairqueue.fq_size l
  join (
    select distinct on (s.name) s.name, s.at, s.bytes
    from fairqueue.fq_size s
    where s.at between v_last - 86400000000 and v_last - 1
    order by s.name, s.at
  ) f on f.name = l.name
  where l.at = v_last;
end
$$;
