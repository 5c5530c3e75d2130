-- fq_fit_costs: which messages of those that a dequeue has chosen may go by the quotas in cost. By message, in order:
-- p_ords: the position of its channel; p_costs. p_states: the rows of the channels, which the caller has locked;
-- p_sight: of fq_queue_room, with what the call has spent before.
-- Returns numbers: the positions of the messages that may go; stopped: the channels whose own quotas hold back all
-- their messages; is_full: the quotas of the queue hold back messages that those of their channels do not.
-- Guarantees: a rate in cost lets a message go while less than its burst is charged; then nothing goes until that is
-- paid. What is out costs at most max_cost_out, but a message that costs more by itself goes alone. Nothing passes by a
-- message that waits: no message of its channel, and none of the queue if the queue holds it back.
-- Locks: none. Index: none, rows by ctid. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_fit_costs(
  p_states tid[], p_ords integer[], p_costs bigint[], p_sight record, p_now bigint,
  out numbers bigint[], out stopped integer[], out is_full boolean
)
language plpgsql
as $$
begin
  with told as (
    select u.number, u.ord, u.cost, u.before = 0 as is_first,
      (u.before < case when s.rate_of = 'cost' then
        fairqueue.fq_rate_room(p_now, s.rate_at, s.rate_interval, s.rate_burst)
      end) is not false
      and (
        u.before + u.cost <= s.max_cost_out - s.current_cost or u.before = 0 and s.current_cost = 0
      ) is not false as fits
    from (
      select m.number, m.ord, m.cost, sum(m.cost) over (partition by m.ord order by m.number) - m.cost as before
      from unnest(p_ords, p_costs) with ordinality m(ord, cost, number)
    ) u
    join fairqueue.fq_channel_state s on s.ctid = p_states[u.ord]
  ),
  judged as (
    select t.number, t.ord, t.fits, t.is_first,
      t.fits and (t.before < p_sight.rate_left) is not false
      and (
        t.before + t.cost <= p_sight.cost_left or t.before = 0 and (t.cost <= p_sight.first_left) is not false
      ) is not false as goes
    from (
      select o.*, p_sight.spent - o.cost + sum(o.cost) filter (where o.fits) over (order by o.number) as before
      from told o
    ) t
  )
  select array_agg(j.number) filter (where j.goes), array_agg(j.ord) filter (where j.is_first and not j.fits),
    bool_or(j.fits and not j.goes)
  into numbers, stopped, is_full
  from judged j;
end
$$;
