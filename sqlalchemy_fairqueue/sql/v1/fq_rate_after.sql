-- fq_rate_after: where a rate stands (rate_at) after p_units messages, or units of cost (below 0: fewer were used than
-- were counted).
-- Guarantees: one expression, which the planner inlines. It moves by 365 days at most. Locks: none. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_rate_after(p_rate_at bigint, p_units bigint, p_rate_interval bigint)
returns bigint
language sql
immutable parallel safe
as $$
  select greatest(
    0,
    least(
      253402300799999999,
      p_rate_at + p_rate_interval * greatest(
        -31536000000000 / greatest(1, p_rate_interval),
        least(31536000000000 / greatest(1, p_rate_interval), p_units)
      )
    )
  )
$$;
