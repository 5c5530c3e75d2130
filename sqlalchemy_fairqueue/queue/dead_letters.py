"""Dead letter methods of a queue: read, redriven and purged."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.dead_letters import read_dead_letters
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import Facet, QueueBase
from sqlalchemy_fairqueue.queue.verbs import verb
from sqlalchemy_fairqueue.times import instant_microseconds
from sqlalchemy_fairqueue.values.checks import check_count, check_instant, check_names, check_page
from sqlalchemy_fairqueue.values.reports import DeadLetterInfo

if TYPE_CHECKING:
    import builtins
    from datetime import datetime

    from sqlalchemy_fairqueue.database.calls import Call, Target
    from sqlalchemy_fairqueue.queue.verbs import Where

    Ids = int | Iterable[int] | None


class DeadLetters(Facet[QueueBase]):
    """Dead letters of a queue, as ``queue.dead_letters``: all is done at once, since they return what they found.

    On a session or connection they are part of its transaction, and what a session has recorded but not sent is not
    seen; on an engine they have one of their own. Of ids, channel and kind all that are given must be met.

    Example:
        >>> queue.dead_letters.list(engine)
        []
    """

    @verb
    def list(
        self,
        where: Where,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after: DeadLetterInfo | None = None,
    ) -> builtins.list[DeadLetterInfo]:
        """Return dead letters, the oldest first.

        It reads what it returns, by an index, also of a channel or a kind. An error has no index: with one it reads the
        dead letters of the channel or kind between *since* and *until*, after *after*, until it has found *limit*. Of
        a million letters that takes about a second.

        Args:
            where: As for the class.
            message_ids: Only these, one or several. None: all.
            channel: Only those of this channel.
            kind: Only those of this kind.
            error: Only those whose reason or error contains this text.
            since: Only those that died then or later (aware).
            until: Only those that died before then (aware).
            limit: Most to return, 1 to 100,000.
            after: Only those that died after this one: the last of the page before.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
            >>> queue.bury(engine, queue.dequeue(engine), reason="not a file")
            >>> [letter.reason for letter in queue.dead_letters.list(engine, kind="parse")]
            ['not a file']
        """
        which = _which(message_ids, channel, kind)
        check_names(error=error)
        for what, time in (("since", since), ("until", until)):
            if time is not None:
                check_instant(what, time)
        check_count("limit", limit, 1, 100_000)
        check_page("after", after, DeadLetterInfo)
        asked = partial(read_dead_letters, target=self._target, codec=self._queue.codec, error=error, **which)
        return self._ask(where, partial(asked, limit=limit, after=after, since=since, until=until))

    @verb
    def redrive(
        self,
        where: Where,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        limit: int = 1000,
    ) -> dict[int, str]:
        """Give dead letters another life: the same messages with the same ids, due at once, the oldest death first.

        Their attempts count anew. A bound of the channel's backlog does not hold them up.

        In the lock order it counts as a settlement: the transaction cannot enqueue afterwards. Use an engine, or a
        transaction of its own. It locks the dead letters, waiting for another redrive or purge of those that are named,
        and passing by others; and their keys, waiting for a transaction that is adding or settling the same ones.

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

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.bury(engine, queue.dequeue(engine))
            >>> queue.dead_letters.redrive(engine, message_id) == {message_id: "redriven"}
            True
        """
        which = _which(message_ids, channel, kind)
        check_count("limit", limit, 1, 100_000)
        call = redriving(self._target, limit=limit, **which)
        return self._ask(where, lambda connection: dict(map(tuple, call.rows(connection))), settles=True)

    @verb
    def purge(
        self,
        where: Where,
        message_ids: Ids = None,
        *,
        channel: str | None = None,
        kind: str | None = None,
        until: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """Delete dead letters for good. With no restriction all of the queue's go.

        It locks them, waiting for a redrive or purge of those that are named, and passing by others that are locked.

        Args:
            where: As for the class.
            message_ids: Only these, one or several.
            channel: Only those of this channel.
            kind: Only those of this kind.
            until: Only those that died before then (aware).
            before: Another name of *until*, which it had first. Give one of the two.

        Returns:
            How many were deleted.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.bury(engine, queue.dequeue(engine))
            >>> queue.dead_letters.purge(engine, until=datetime.now(UTC) + timedelta(days=1))
            1
        """
        which = _which(message_ids, channel, kind)
        for name, time in (("until", until), ("before", before)):
            if time is not None:
                check_instant(name, time)
        if until is not None and before is not None:
            raise InvalidArgument(f"until is {until} and before is {before}: both say the same; give one")
        last = until or before
        died_before = None if last is None else instant_microseconds(last)
        doing = f"purge dead letters of {self._target.named()}"
        call = self._target.call("fq_purge_dead", doing, before=died_before, **which)
        deleted: int = self._ask(where, call.value)
        return deleted


def redriving(target: Target, *, limit: int = 1, **which: Any) -> Call:
    """Return the call that redrives dead letters, which returns the outcome of each with its id."""
    doing = f"redrive dead letters of {target.named()}"
    return target.call("fq_redrive", doing, limit=limit, notify=target.notify, **which)


def _which(message_ids: Ids, channel: str | None, kind: str | None) -> dict[str, Any]:
    """Return the parameters that name dead letters. What is given must all be met; None restricts nothing."""
    check_names(channel=channel, kind=kind)
    return {"ids": None if message_ids is None else checked_ids(message_ids), "channel": channel, "kind": kind}


def checked_ids(message_ids: int | Iterable[int]) -> list[int]:
    """Return one or several ids of messages as a list, checked.

    Raises:
        InvalidArgument: They are none.
    """
    given: object = message_ids
    if isinstance(given, str) or not isinstance(given, (int, Iterable)):
        raise InvalidArgument(f"message_ids is {given!r:.80}; give an id or several")
    ids = [given] if isinstance(given, int) else list(given)
    for message_id in ids:
        check_count("message_ids", message_id, 1, 2**63 - 1)
    return ids
