"""Times that the server's clock has not come to: it was ahead for a while, and who was served then waits for them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level
from sqlalchemy_fairqueue.cli.printing import counted, duration_words
from sqlalchemy_fairqueue.sql import quoted
from sqlalchemy_fairqueue.statements.building import qualifier
from sqlalchemy_fairqueue.times import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.cli.doctor.findings import Examination

_GRACE = timedelta(minutes=1)

# A service lies in the past, a rate owes its burst at most, and who was due when it was enqueued is not due later. Next
# services, leases and other messages may lie ahead as far as anybody likes.
_AHEAD = (
    "select c.queue, count(*) filter (where s.ahead > 0) as channels, coalesce(sum(m.messages), 0) as messages, "
    "greatest(max(s.ahead), max(m.ahead)) + :grace as ahead "
    "from (select {schema}fq_now() + :grace as until) n cross join {schema}fq_channel c "
    "join lateral (select greatest(s.last_dequeue_at, s.release_at - s.release_burst * s.release_interval) - n.until "
    "  as ahead from {schema}fq_channel_state s where s.channel_id = c.id) s on true "
    "cross join lateral (select count(*) as messages, max(m.dequeue_at) - n.until as ahead "
    "  from {schema}fq_message m where m.channel_id = c.id and m.lease_id is null and m.dequeue_at > n.until "
    "  and m.dequeue_at <= m.enqueued_at) m "
    "where (cast(:queue as text) is null or c.queue = :queue) and (s.ahead > 0 or m.messages > 0) "
    "group by c.queue order by c.queue"
)
_LEASES = "update {schema}fq_lease set expires_at = least(expires_at, {schema}fq_now()), waiting_until = null;"
_MESSAGES = (
    "with moved as (update {schema}fq_message set enqueued_at = n.now, dequeue_at = n.now "
    "from (select {schema}fq_now() as now) n where enqueued_at > n.now and dequeue_at between n.now and enqueued_at "
    "returning channel_id, dequeue_at, id) "
    "insert into {schema}fq_signal (queue, channel_id, dequeue_at, message_id) "
    "select c.queue, c.id, min(m.dequeue_at), min(m.id) "
    "from moved m join {schema}fq_channel c on c.id = m.channel_id group by c.queue, c.id;"
)
_CHANNELS = (
    "update {schema}fq_channel_state set turn = turn + 1, last_dequeue_at = least(last_dequeue_at, n.now), "
    "release_at = least(release_at, n.now + release_burst * release_interval), "
    "next_dequeue_at = case when paused_at is null and head_dequeue_at is not null "
    "then greatest(head_dequeue_at, least(last_dequeue_at, n.now), "
    "least(release_at, n.now + release_burst * release_interval) - (release_burst - 1) * release_interval) end "
    "from (select {schema}fq_now() as now) n "
    "where last_dequeue_at > n.now or release_at > n.now + release_burst * release_interval;"
)


def check_times(examined: Examination) -> Iterator[Finding]:
    """Channels that were served, and messages that were enqueued, at times that are to come."""
    query = text(_AHEAD.replace("{schema}", qualifier(examined.schema)))
    parameters = {"grace": _GRACE // timedelta(microseconds=1), "queue": examined.queue}
    found = False
    for row in examined.connection.execute(query, parameters):
        found = True
        ahead = duration(row.ahead)
        yield Finding(
            "times", Level.PROBLEM,
            f"queue {row.queue!r}: {counted(row.channels, 'channel')} served and "
            f"{counted(int(row.messages), 'message')} enqueued up to {duration_words(ahead)} ahead of the server's "
            "clock, which was wrong then: they wait for that long",
            "stop the workers, run this, start them again:\n" + "\n".join(remedies(examined.schema)),
            {"queue": row.queue, "channels": row.channels, "messages": int(row.messages), "ahead_seconds": ahead},
        )  # fmt: skip
    if not found:
        yield Finding("times", Level.OK, "no channel was served and no message enqueued at a time that is to come")


def remedies(schema: str) -> list[str]:
    """What brings leases, messages and channels back from times that are to come, while no worker runs."""
    place = f"{quoted(schema)}."
    return [statement.replace("{schema}", place) for statement in (_LEASES, _MESSAGES, _CHANNELS)]
