"""Stats methods of a queue: its counts, and those of its channels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.values import check_count, check_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue.base import AsyncWhere, Where
    from sqlalchemy_fairqueue.values import ChannelStats, QueueStats


class StatsMethods(QueueBase):
    """stats and channels: answered at once, in the transaction of a session or connection or in one of their own.

    They lock nothing, and what a transaction has recorded but not sent is not counted. On an AsyncSession,
    AsyncConnection or AsyncEngine await the twin.
    """

    def stats(self, where: Where) -> QueueStats:
        """How much is ready, scheduled, leased and dead, who works on it, and what holds it up.

        It reads a little of each channel, and what is scheduled, prioritised, leased and dead, but not the ready
        messages: 5 to 10 us a channel, up to a second for 100,000.
        """
        return self._ask(where, partial(database.stats, target=self._target))

    def channels(
        self, where: Where, channel: str | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[ChannelStats]:
        """The state of each channel: its counts, its policy, when it was last served.

        Args:
            where: As for the class.
            channel: Only this one, if it exists. None: all, by name.
            limit: Most channels to return, 1 to 100,000.
            after: Only those whose names sort after this one, as UTF-8 bytes: the last name of the page before.

        Raises:
            InvalidArgument: A bad argument.
        """
        return self._ask(where, self._channels(channel, limit, after))

    async def astats(self, where: AsyncWhere) -> QueueStats:
        """As :meth:`stats`."""
        return await self._aask(where, partial(database.stats, target=self._target))

    async def achannels(
        self, where: AsyncWhere, channel: str | None = None, *, limit: int = 1000, after: str | None = None
    ) -> list[ChannelStats]:
        """As :meth:`channels`."""
        return await self._aask(where, self._channels(channel, limit, after))

    def _channels(
        self, channel: str | None, limit: int, after: str | None
    ) -> Callable[[Connection], list[ChannelStats]]:
        for what, name in (("channel", channel), ("after", after)):
            if name is not None:
                check_name(what, name)
        check_count("limit", limit, 1, 100_000)
        return partial(database.channel_stats, target=self._target, channel=channel, limit=limit, after=after)
