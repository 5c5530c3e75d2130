"""Dead letters: looked at, given another life, or deleted for good."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.codecs import decoded, headers_of
from sqlalchemy_fairqueue.errors import InvalidArgument, translated
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.times import instant, instant_microseconds
from sqlalchemy_fairqueue.unit_of_work import may_notify
from sqlalchemy_fairqueue.values import DeadLetterInfo, check_count, check_instant, check_name

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, RowMapping

    from sqlalchemy_fairqueue.queue.base import AsyncPlace, Place

    Ids = int | Iterable[int] | None


class DeadLetters(QueueBase):
    """dead_letters, redrive and purge_dead: done at once, since they return what they found.

    On a session or connection they are part of its transaction, and what a session has recorded but not sent is not
    seen; on an engine they have one of their own. On an AsyncSession, AsyncConnection or AsyncEngine await the twin.
    What is given restricts: ids, channel and kind must all be met.
    """

    def dead_letters(
        self,
        where: Place,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: DeadLetterInfo | None = None,
    ) -> list[DeadLetterInfo]:
        """The messages that will not be tried again, the oldest death first.

        Args:
            where: As for the class.
            message_ids: Only these, one or several. None: all.
            channel: Only those of this channel.
            kind: Only those of this kind.
            limit: Most to return, 1 to 100,000.
            after: Only those that died after this one: the last of the page before.

        Raises:
            InvalidArgument: A bad argument.
        """
        asked = _asked(message_ids, channel, kind) | _page(limit, after)
        return self._ask(where, lambda connection: self._dead_letters(connection, asked))

    def redrive(
        self,
        where: Place,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        limit: int = 1000,
    ) -> dict[int, str]:
        """Give dead letters another life: the same messages with the same ids, due at once, the oldest death first.

        Their attempts count anew. A bound of the channel's backlog does not hold them up.

        In the lock order it counts as a completion: the transaction cannot enqueue afterwards. Use an engine, or a
        transaction of its own. It locks the dead letters, waiting for another redrive or purge of those that are named,
        and passing by others; and their keys, waiting for a transaction that is adding or ending the same ones.

        Args:
            where: As for the class.
            message_ids: Only these, one or several. None: the oldest.
            channel: Only those of this channel.
            kind: Only those of this kind.
            limit: Most to redrive where no ids are given, 1 to 100,000. Call again for more, as long as one was
                redriven: those whose key stands come last.

        Returns:
            What became of each, by id. "redriven"; "duplicate": another message holds its key, so that it stays dead;
            "missing": an id that was given is no such dead letter.

        Raises:
            InvalidArgument: A bad argument.
            AutocommitError: On a session or connection in AUTOCOMMIT.
        """
        asked = _asked(message_ids, channel, kind) | _page(limit)
        return self._ask(where, lambda connection: self._redrive(connection, asked), settles=True)

    def purge_dead(
        self,
        where: Place,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        before: datetime | None = None,
    ) -> int:
        """Delete dead letters for good. With no restriction all of the queue's go.

        It locks them, waiting for a redrive or purge of those that are named, and passing by others that are locked.

        Args:
            where: As for the class.
            message_ids: Only these, one or several.
            channel: Only those of this channel.
            kind: Only those of this kind.
            before: Only those that died before this instant (aware).

        Returns:
            How many were deleted.

        Raises:
            InvalidArgument: A bad argument.
        """
        asked = _asked(message_ids, channel, kind) | _before(before)
        return self._ask(where, lambda connection: self._purge_dead(connection, asked))

    async def adead_letters(
        self,
        where: AsyncPlace,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: DeadLetterInfo | None = None,
    ) -> list[DeadLetterInfo]:
        """As :meth:`dead_letters`."""
        asked = _asked(message_ids, channel, kind) | _page(limit, after)
        return await self._aask(where, lambda connection: self._dead_letters(connection, asked))

    async def aredrive(
        self,
        where: AsyncPlace,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        limit: int = 1000,
    ) -> dict[int, str]:
        """As :meth:`redrive`."""
        asked = _asked(message_ids, channel, kind) | _page(limit)
        return await self._aask(where, lambda connection: self._redrive(connection, asked), settles=True)

    async def apurge_dead(
        self,
        where: AsyncPlace,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        before: datetime | None = None,
    ) -> int:
        """As :meth:`purge_dead`."""
        asked = _asked(message_ids, channel, kind) | _before(before)
        return await self._aask(where, lambda connection: self._purge_dead(connection, asked))

    def _dead_letters(self, connection: Connection, asked: dict[str, Any]) -> list[DeadLetterInfo]:
        with translated(f"look at the dead letters of queue {self.name!r}"):
            rows = connection.execute(statements.dead_letters(self.schema), {"queue": self.name, **asked})
            found = rows.mappings().all()
        return [self._dead_letter(row) for row in found]

    def _dead_letter(self, row: RowMapping) -> DeadLetterInfo:
        columns = dict[str, Any](row)
        columns["key"] = columns.pop("dedupe_key")
        columns["headers"], refused = headers_of(columns["headers"])
        columns["enqueued_at"] = instant(columns["enqueued_at"])
        columns["died_at"] = instant(columns["died_at"])
        return DeadLetterInfo(queue=self.name, **columns, decoded=refused or decoded(self.codec, row["content"]))

    def _redrive(self, connection: Connection, asked: dict[str, Any]) -> dict[int, str]:
        asked["notify"] = may_notify(connection, [self._target])
        with translated(f"redrive dead letters of queue {self.name!r}"):
            rows = connection.execute(statements.redrive(self.schema), {"queue": self.name, **asked}).all()
        return {row.message_id: row.outcome for row in rows}

    def _purge_dead(self, connection: Connection, asked: dict[str, Any]) -> int:
        with translated(f"purge dead letters of queue {self.name!r}"):
            purged: int = connection.execute(
                statements.purge_dead(self.schema), {"queue": self.name, **asked}
            ).scalar_one()
        return purged


def _asked(message_ids: Ids, channel: str | None, kind: str | None) -> dict[str, Any]:
    for what, name in (("channel", channel), ("kind", kind)):
        if name is not None:
            check_name(what, name)
    if message_ids is None:
        return {"ids": None, "channel": channel, "kind": kind}
    given: object = message_ids
    if isinstance(given, str) or not isinstance(given, (int, Iterable)):
        raise InvalidArgument(f"message_ids is {given!r:.80}; give an id or several")
    ids = [given] if isinstance(given, int) else list(given)
    for message_id in ids:
        check_count("message_ids", message_id, 1, 2**63 - 1)
    return {"ids": ids, "channel": channel, "kind": kind}


def _page(limit: int, *after: DeadLetterInfo | None) -> dict[str, Any]:
    check_count("limit", limit, 1, 100_000)
    page: dict[str, Any] = {"limit": limit}
    for last in after:
        if last is not None and not isinstance(last, DeadLetterInfo):
            raise InvalidArgument(f"after is {last!r:.80}; give the last DeadLetterInfo of the page before")
        page["died_at"] = None if last is None else instant_microseconds(last.died_at)
        page["message_id"] = None if last is None else last.message_id
    return page


def _before(before: datetime | None) -> dict[str, Any]:
    if before is None:
        return {"before": None}
    check_instant("before", before)
    return {"before": instant_microseconds(before)}
