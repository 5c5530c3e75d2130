"""Lookup methods of a queue: messages that are not settled, by their id or by their channel."""

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
    from sqlalchemy_fairqueue.values import MessageDetails

_WHOLE = 256 * 2**20
_BEGINNING = 65_536


class LookupMethods(QueueBase):
    """message and messages: answered at once, as the methods for statistics. They lock nothing.

    What a transaction has recorded but not sent is not found. A database role needs the grant "operator".
    """

    def message(self, where: Where, message_id: int) -> MessageDetails | None:
        """One message that is not settled, with its whole content; None: it is done, dead, withdrawn, or never was.

        ``queue.codec.decode(found.content)`` is its payload. Dead letters are found by :meth:`dead_letters`.

        Args:
            where: A session, Connection or Engine.
            message_id: The message.

        Raises:
            InvalidArgument: A bad argument.
        """
        found = self._ask(where, self._message(message_id))
        return found[0] if found else None

    def messages(self, where: Where, *, channel: str, limit: int = 100) -> list[MessageDetails]:
        """The messages of a channel that are not settled, with the first 65,536 bytes of each content.

        First those that consumers hold, then those that wait, in the order of their delivery: *limit* of each at most.
        It reads what it returns, and the ids of what consumers hold of the queue.

        Args:
            where: A session, Connection or Engine.
            channel: The channel. One that does not exist has no messages.
            limit: Most to return of each, 1 to 10,000.

        Raises:
            InvalidArgument: A bad argument.
        """
        return self._ask(where, self._messages(channel, limit))

    async def amessage(self, where: AsyncWhere, message_id: int) -> MessageDetails | None:
        """As :meth:`message`, on an AsyncSession, AsyncConnection or AsyncEngine."""
        found = await self._aask(where, self._message(message_id))
        return found[0] if found else None

    async def amessages(self, where: AsyncWhere, *, channel: str, limit: int = 100) -> list[MessageDetails]:
        """As :meth:`messages`, on an AsyncSession, AsyncConnection or AsyncEngine."""
        return await self._aask(where, self._messages(channel, limit))

    def _message(self, message_id: int) -> Callable[[Connection], list[MessageDetails]]:
        check_count("message_id", message_id, 1, 2**63 - 1)
        return partial(database.message_details, target=self._target, ids=[message_id], content_bytes=_WHOLE)

    def _messages(self, channel: str, limit: int) -> Callable[[Connection], list[MessageDetails]]:
        check_name("channel", channel)
        check_count("limit", limit, 1, 10_000)
        return partial(
            database.message_details, target=self._target, channel=channel, limit=limit, content_bytes=_BEGINNING
        )
