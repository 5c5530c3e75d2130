-- fq_check_policy: refuse a channel policy that cannot be kept. Used by configuration and by the first use of a
-- channel.
-- Guarantees: max_concurrency and max_backlog null or >= 1, rate_burst 1 to 1000000, weight 1 to 10000, and
-- rate_interval (microseconds) >= 0 and at most 365 days for a whole burst, so that no sum of times leaves the range
-- of bigint.
-- Locks: none. Index: none. Errors: QF001.
create function fairqueue.fq_check_policy(
  p_max_concurrency integer, p_rate_interval bigint, p_rate_burst integer, p_weight integer,
  p_max_backlog integer default null
)
returns void
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_max_concurrency < 1
    or p_rate_interval is null or p_rate_interval not between 0 and 31536000000000
    or p_rate_burst is null or p_rate_burst not between 1 and 1000000
    or p_weight is null or p_weight not between 1 and 10000
    or p_max_backlog < 1
    or p_rate_interval::numeric * p_rate_burst > 31536000000000 then
    raise exception 'a policy has max_concurrency %, rate_interval %, rate_burst %, weight %, max_backlog %',
        p_max_concurrency, p_rate_interval, p_rate_burst, p_weight, p_max_backlog
      using errcode = 'QF001',
        hint = 'max_concurrency and max_backlog are null or at least 1, rate_interval (microseconds) times '
          'rate_burst 0 to 365 days, rate_burst 1 to 1000000, weight 1 to 10000';
  end if;
end
$$;
