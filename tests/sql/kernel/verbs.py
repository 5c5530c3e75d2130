"""Pauses, limits, bounds, the history and statistics as SQL, and the sums that must be right at every commit."""

from typing import Any

from tests.sql.client import Kernel, policy_json

UNBALANCED = """
with channel as (
  select s.*, c.name,
    (select count(*) from fq_message m where m.channel_id = c.id and m.lease_id is null) as undelivered,
    (select coalesce(sum(m.slots & 1), 0) from fq_message m where m.channel_id = c.id) as held,
    (select coalesce(sum(g.added), 0) from fq_signal g where g.channel_id = c.id) as added,
    (select coalesce(sum(g.freed), 0) from fq_signal g where g.channel_id = c.id) as freed
  from fq_channel c join fq_channel_state s on s.channel_id = c.id
)
select format('backlog of %s is %s and %s added, but %s are undelivered', name, backlog, added, undelivered) as problem
from channel where backlog + added <> undelivered
union all
select format('%s counts %s slots, but %s are held and %s freed', name, current_concurrency, held, freed)
from channel where current_concurrency <> held + freed
union all
select format('paused channel %s stands at %s and waits until %s', name, ready_tag, due_at)
from channel where paused_at is not null and num_nonnulls(ready_tag, due_at) > 0
union all
select format('channel %s has head %s and stands nowhere', name, head_message_id)
from channel where paused_at is null and head_dequeue_at < 9223372036854775807 and num_nonnulls(ready_tag, due_at) <> 1
  and (current_concurrency < max_concurrency) is not false
  and not exists (select from fq_signal g where g.channel_id = channel.channel_id)
union all
select format('queue %s counts %s slots, but %s are held and %s freed', q.queue, q.current_concurrency, n.held, n.freed)
from fq_queue_state q
cross join lateral (
  select
    (select coalesce(sum(m.slots >> 1), 0)
     from fq_message m join fq_channel c on c.id = m.channel_id where c.queue = q.queue) as held,
    (select coalesce(sum(g.queue_freed), 0) from fq_signal g where g.queue = q.queue) as freed
) n
where q.current_concurrency <> n.held + n.freed
union all
select format('%s messages of ordering key %s are out', count(*), m.ordering_key)
from fq_message m where m.ordering_key is not null and m.lease_id is not null
group by m.channel_id, m.ordering_key having count(*) > 1
union all
select format('message %s waits for nobody of ordering key %s', m.id, m.ordering_key)
from fq_message m where m.dequeue_at = 9223372036854775807
  and not exists (
    select from fq_message o
    where o.channel_id = m.channel_id and o.ordering_key = m.ordering_key and (o.id < m.id or o.lease_id is not null)
  )
  and not exists (select from fq_signal g where g.channel_id = m.channel_id and g.ordering_key = m.ordering_key)
union all
select format('queue %s has %s state rows', q.queue, count(*))
from fq_queue_state q group by q.queue having count(*) > 1
"""


def unbalanced(kernel: Kernel) -> list[str]:
    """What does not add up in a snapshot of now."""
    # On tables that nobody analysed the statement looks costly enough for seconds of compilation.
    kernel.rows("select set_config('jit', 'off', false)")
    return [row["problem"] for row in kernel.rows(UNBALANCED)]


def limit(kernel: Kernel, most: int | None) -> None:
    """fq_limit_queue: how many messages may be out."""
    kernel.rows("select fq_limit_queue(%(queue)s, %(changes)s)", changes=policy_json(max_concurrency=most))


def pause(kernel: Kernel, channel: str | None = None, *, new: bool = False) -> bool:
    """fq_pause: whether it changed anything."""
    changed: bool = kernel.value("select fq_pause(%(queue)s, %(channel)s, true, %(new)s)", channel=channel, new=new)
    return changed


def resume(kernel: Kernel, channel: str | None = None, *, notify: bool = True) -> bool:
    """fq_pause with p_paused false: whether it changed anything."""
    changed: bool = kernel.value(
        "select fq_pause(%(queue)s, %(channel)s, false, p_notify => %(notify)s)",
        channel=channel,
        notify=notify,
    )
    return changed


def bound(kernel: Kernel, channel: str | None, max_backlog: int | None, *, drop: bool = False) -> None:
    """fq_configure_channel, or fq_set_queue without a channel, with a bound and nothing else."""
    call = "fq_configure_channel(%(queue)s, %(channel)s, %(policy)s)"
    if channel is None:
        call = "fq_set_queue(%(queue)s, jsonb_build_object('defaults', %(policy)s::jsonb))"
    policy = policy_json(max_backlog=max_backlog, on_full="drop" if drop else "raise")
    kernel.rows(f"select {call}", channel=channel, policy=policy)


def stats(kernel: Kernel) -> dict[str, Any]:
    """fq_stats."""
    (row,) = kernel.rows("select * from fq_stats(%(queue)s)")
    return row


def channel_stats(kernel: Kernel, *channels: str, **more: object) -> dict[str, dict[str, Any]]:
    """fq_channel_stats, by channel, in its order; without channels of all."""
    named = "".join(f", p_{name} => %({name})s" for name in more)
    rows = kernel.rows(
        f"select * from fq_channel_stats(%(queue)s, %(channels)s::text[]{named})",
        channels=list(channels) or None,
        **more,
    )
    return {row["channel"]: row | row["policy"] for row in rows}


def forget(kernel: Kernel) -> dict[str, Any]:
    """fq_forget_channels, once: a round begins, or the one that is open goes on."""
    [row] = kernel.rows("select * from fq_forget_channels(100)")
    return row


def forgotten(kernel: Kernel) -> int:
    """How many channels go once nobody else runs: a connection that begins counts for a moment."""
    found = forget(kernel)
    while found["waiting"]:
        found = forget(kernel)
    count: int = found["forgotten"]
    return count
