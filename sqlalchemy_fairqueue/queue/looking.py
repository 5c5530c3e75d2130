"""Counts of a queue and of its channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import translated
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.times import duration, instant
from sqlalchemy_fairqueue.values import ChannelStats, QueueStats, check_count, check_name

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping

    from sqlalchemy_fairqueue.queue.base import AsyncPlace, Place

_TIMES = {"paused_at", "oldest_ready_at", "last_dequeue_at"}


class Looking(QueueBase):
    """stats and channels: answered at once, in the transaction of a session or connection or in one of their own.

    They lock nothing, and what a transaction has recorded but not sent is not counted. On an AsyncSession,
    AsyncConnection or AsyncEngine await the twin.
    """

    def stats(self, where: Place) -> QueueStats:
        """How much is ready, scheduled, out and dead, who works on it, and what holds it up.

        It reads a little of each channel, and what is scheduled, prioritised, out and dead, but not the ready messages:
        5 to 10 us a channel, up to a second for 100,000.
        """
        return self._ask(where, self._stats)

    def channels(
        self, where: Place, channel: str | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[ChannelStats]:
        """The state of each channel: its counts, its policy, its place.

        Args:
            where: As for the class.
            channel: Only this one, if it exists. None: all, by name.
            limit: Most channels to return, 1 to 100,000.
            after: Only those whose names sort after this one, as UTF-8 bytes: the last name of the page before.

        Raises:
            InvalidArgument: A bad argument.
        """
        asked = _asked(channel, limit, after)
        return self._ask(where, lambda connection: self._channels(connection, asked))

    async def astats(self, where: AsyncPlace) -> QueueStats:
        """As :meth:`stats`."""
        return await self._aask(where, self._stats)

    async def achannels(
        self, where: AsyncPlace, channel: str | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[ChannelStats]:
        """As :meth:`channels`."""
        asked = _asked(channel, limit, after)
        return await self._aask(where, lambda connection: self._channels(connection, asked))

    def _stats(self, connection: Connection) -> QueueStats:
        with translated(f"look at queue {self.name!r}"):
            row = connection.execute(statements.stats(self.schema), {"queue": self.name}).mappings().one()
        columns = _read(row)
        columns["max_concurrency"] = columns.pop("global_max_concurrency")
        return QueueStats(queue=self.name, **columns)

    def _channels(self, connection: Connection, asked: dict[str, Any]) -> list[ChannelStats]:
        with translated(f"look at the channels of queue {self.name!r}"):
            answer = connection.execute(statements.channel_stats(self.schema), {"queue": self.name, **asked})
            rows = answer.mappings().all()
        found = []
        for row in rows:
            columns = _read(row)
            columns["release_interval"] = duration(columns["release_interval"])
            columns["on_full"] = "drop" if columns.pop("drop_when_full") else "raise"
            found.append(ChannelStats(queue=self.name, **columns))
        return found


def _read(row: RowMapping) -> dict[str, Any]:
    return {name: instant(value) if name in _TIMES and value is not None else value for name, value in row.items()}


def _asked(channel: str | None, limit: int, after: str | None) -> dict[str, Any]:
    for what, name in (("channel", channel), ("after", after)):
        if name is not None:
            check_name(what, name)
    check_count("limit", limit, 1, 100_000)
    return {"channel": channel, "limit": limit, "after": after}
