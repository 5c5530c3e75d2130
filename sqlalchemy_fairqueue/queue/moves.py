"""Move methods of a queue: a message that waits is put into another channel."""

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
    from sqlalchemy_fairqueue.values import MoveOutcome


class MoveMethods(QueueBase):
    """move: done at once, since it returns what it found."""

    def move(self, where: Where, message_id: int, channel: str) -> MoveOutcome:
        """Put a message that waits into another channel of the queue, where it stands by its time and priority.

        It keeps its id, key, payload and attempts. The channel is made if it is new. A bound of its backlog does not
        hold the message up. On a session or connection the move is part of the transaction, on an engine it has one of
        its own.

        In the lock order it counts as a settlement: the transaction cannot enqueue afterwards. Use an engine, or a
        transaction of its own. It waits for a transaction that makes the channel or adds the same key to it, then for
        one that delivers, settles, cancels or replaces the message, and locks all of these. A cancel that waits for the
        move finds the message missing, and must be called again.

        Args:
            where: A session, Connection or Engine.
            message_id: The message.
            channel: The channel to put it into.

        Returns:
            "moved"; "unchanged": it is in that channel; "leased": a consumer holds it, so that it stays; "duplicate":
            another message of that channel holds its key, so that it stays; "missing": done, dead, withdrawn, or of
            another queue.

        Raises:
            InvalidArgument: A bad argument.
            AutocommitError: On a session or connection in AUTOCOMMIT.
        """
        return self._ask(where, self._move(message_id, channel), settles=True)

    async def amove(self, where: AsyncWhere, message_id: int, channel: str) -> MoveOutcome:
        """As :meth:`move`, on an AsyncSession, AsyncConnection or AsyncEngine."""
        return await self._aask(where, self._move(message_id, channel), settles=True)

    def _move(self, message_id: int, channel: str) -> Callable[[Connection], MoveOutcome]:
        check_count("message_id", message_id, 1, 2**63 - 1)
        check_name("channel", channel)
        return partial(
            database.move_message,
            target=self._target,
            message_id=message_id,
            channel=channel,
            policy=self.defaults,
            notify=self.notify,
        )
