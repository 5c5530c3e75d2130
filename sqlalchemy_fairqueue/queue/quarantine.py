"""Quarantine methods of a queue: messages that could not be delivered are listed, released and deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.dead_letters import checked_ids
from sqlalchemy_fairqueue.values import QuarantinedInfo, check_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue.base import AsyncWhere, Where


class QuarantineMethods(QueueBase):
    """quarantined, release_quarantined and purge_quarantined: done at once, as the methods for dead letters.

    A dequeue that fails over a row sets the row aside and goes on. A message that can be read becomes a dead letter
    then. One that cannot stands in the quarantine, with what could be read of it.
    """

    def quarantined(
        self, where: Where, *, limit: int = 100, after: QuarantinedInfo | None = None
    ) -> list[QuarantinedInfo]:
        """The messages in quarantine, the first one set aside first, without their contents.

        Args:
            where: A session, Connection or Engine.
            limit: Most to return, 1 to 100,000.
            after: Only those after this one: the last of the page before.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.quarantined(engine)
            []
        """
        return self._ask(where, self._quarantined(limit, after))

    def release_quarantined(self, where: Where, message_ids: int | Iterable[int]) -> dict[int, str]:
        """Put messages of the quarantine back into their channels, due now, attempts counted anew, without their keys.

        In the lock order it counts as a settlement.

        Args:
            where: A session, Connection or Engine.
            message_ids: One or several.

        Returns:
            What became of each, by id. "released"; "unreadable": its content is lost; "refused": a value of it is out
            of bounds; "standing": a message has its id; "missing": it is not in quarantine. All but the first stay as
            they are.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.release_quarantined(engine, 17)
            {17: 'missing'}
        """
        return self._ask(where, self._end(message_ids, release=True), settles=True)

    def purge_quarantined(self, where: Where, message_ids: int | Iterable[int]) -> dict[int, str]:
        """Delete messages of the quarantine for good. Returns "deleted" or "missing" for each, by id.

        Args:
            where: A session, Connection or Engine.
            message_ids: One or several.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.purge_quarantined(engine, 17)
            {17: 'missing'}
        """
        return self._ask(where, self._end(message_ids, release=False))

    async def aquarantined(
        self, where: AsyncWhere, *, limit: int = 100, after: QuarantinedInfo | None = None
    ) -> list[QuarantinedInfo]:
        """As :meth:`quarantined`."""
        return await self._aask(where, self._quarantined(limit, after))

    async def arelease_quarantined(self, where: AsyncWhere, message_ids: int | Iterable[int]) -> dict[int, str]:
        """As :meth:`release_quarantined`."""
        return await self._aask(where, self._end(message_ids, release=True), settles=True)

    async def apurge_quarantined(self, where: AsyncWhere, message_ids: int | Iterable[int]) -> dict[int, str]:
        """As :meth:`purge_quarantined`."""
        return await self._aask(where, self._end(message_ids, release=False))

    def _quarantined(self, limit: int, after: QuarantinedInfo | None) -> Callable[[Connection], list[QuarantinedInfo]]:
        check_count("limit", limit, 1, 100_000)
        if after is not None and not isinstance(after, QuarantinedInfo):
            raise InvalidArgument(f"after is {after!r:.80}; give the last QuarantinedInfo of the page before")
        position = 0 if after is None else after.position
        return partial(database.quarantined, target=self._target, after=position, limit=limit)

    def _end(self, message_ids: int | Iterable[int], *, release: bool) -> Callable[[Connection], dict[int, str]]:
        ids = checked_ids(message_ids)
        return partial(database.end_quarantine, target=self._target, message_ids=ids, release=release)
