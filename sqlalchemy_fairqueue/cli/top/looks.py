"""One look at all channels after the other, and what changed between two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from sqlalchemy_fairqueue.cli.looking import MOST_CHANNELS
from sqlalchemy_fairqueue.cli.rows import age
from sqlalchemy_fairqueue.statements.building import qualifier
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue import Queue
    from sqlalchemy_fairqueue.cli.sites import Site
    from sqlalchemy_fairqueue.values import ChannelStats

Key = tuple[str, str]

PAGE = MOST_CHANNELS
"""How many channels a statement tells; a queue may have more."""

# What committed between two snapshots, and nothing twice: ids and times would miss what commits late.
_FINISHED = (
    "select h.queue, h.channel, count(*) as attempts from {schema}fq_history h "
    "where h.recorded_xid >= pg_snapshot_xmin(cast(:before as pg_snapshot)) "
    "and not pg_visible_in_snapshot(h.recorded_xid, cast(:before as pg_snapshot)) "
    "and h.outcome = 'completed' and h.queue = any(:queues) group by h.queue, h.channel"
)
_CONTEXT = (
    "select pg_current_snapshot()::text as snapshot, {schema}fq_now() as now, "
    "array(select q.name from {schema}fq_queue q where q.history) as recorded"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A channel, and how it moved since the last look.

    Attributes:
        stats: How it stands.
        oldest: How long the oldest ready message waits.
        change: By how much its messages became more or fewer, a second. None: there was no look before.
        rate: Completions a second. None: there was no look before, or its queue records no history.
    """

    stats: ChannelStats
    oldest: timedelta | None
    change: float | None
    rate: float | None

    @property
    def messages(self) -> int:
        """Ready, scheduled and leased."""
        return messages_of(self.stats)


def messages_of(stats: ChannelStats) -> int:
    """Ready, scheduled and leased."""
    return stats.ready + stats.scheduled + stats.leased


@dataclass(frozen=True, slots=True)
class Look:
    """All channels at an instant.

    Attributes:
        at: When, by the database's clock.
        since: How long after the look before; None: it is the first.
        lines: The channels.
        snapshot: PostgreSQL's name for what could be seen.
    """

    at: datetime
    since: timedelta | None
    lines: Sequence[Line]
    snapshot: str


def look(site: Site, queues: Sequence[Queue], before: Look | None) -> Look:
    """Look at every channel of the queues, in one snapshot."""
    with site.place.engine.connect() as connected:
        connection = connected.execution_options(isolation_level="REPEATABLE READ")
        schema = qualifier(site.schema)
        context = connection.execute(text(_CONTEXT.replace("{schema}", schema))).one()
        now = instant(context.now)
        found = [stats for queue in queues for stats in _channels(queue, connection)]
        since = now - before.at if before and now > before.at else None
        finished: Mapping[Key, int] = {}
        if before is not None and since is not None and context.recorded:
            query = text(_FINISHED.replace("{schema}", schema))
            rows = connection.execute(query, {"before": before.snapshot, "queues": context.recorded})
            finished = {(row.queue, row.channel): row.attempts for row in rows}
        connection.rollback()
    earlier = {_key(line.stats): line.messages for line in before.lines} if before else {}
    recorded = set(context.recorded)
    lines = []
    for stats in found:
        change = rate = None
        if since is not None:
            change = (messages_of(stats) - earlier.get(_key(stats), 0)) / since.total_seconds()
            if stats.queue in recorded:
                rate = finished.get(_key(stats), 0) / since.total_seconds()
        lines.append(Line(stats, age(stats.oldest_ready_at, now), change, rate))
    return Look(now, since, lines, context.snapshot)


def _channels(queue: Queue, connection: Connection) -> Iterator[ChannelStats]:
    """Every channel of a queue by name, page by page."""
    after = None
    while True:
        page = queue.channels(connection, limit=PAGE, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].channel


def _key(stats: ChannelStats) -> Key:
    return stats.queue, stats.channel
