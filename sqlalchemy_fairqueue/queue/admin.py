"""Facets of operators: dead letters, and what they do rarely with single messages and workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from sqlalchemy_fairqueue.database.clauses import Shape
from sqlalchemy_fairqueue.database.configuration import new_policy_json
from sqlalchemy_fairqueue.database.messages import (
    HistoryPosition,
    first_named,
    read_audits,
    read_dead_letters,
    read_message_attempts,
    read_recent_attempts,
)
from sqlalchemy_fairqueue.database.stats import read_consumers, read_contention, read_trend
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import Facet, QueueBase, verb
from sqlalchemy_fairqueue.queue.lookups import ERROR, checked_name
from sqlalchemy_fairqueue.times import instant_microseconds
from sqlalchemy_fairqueue.values.checks import (
    check_choice,
    check_count,
    check_duration,
    check_instant,
    check_message_id,
    check_name,
    check_names,
    check_page,
)
from sqlalchemy_fairqueue.values.messages import Undelivered
from sqlalchemy_fairqueue.values.reports import AttemptOutcome, AttemptPage, DeadLetterInfo

if TYPE_CHECKING:
    import builtins
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Call, Target
    from sqlalchemy_fairqueue.queue.base import Where
    from sqlalchemy_fairqueue.values.messages import UndeliveredState
    from sqlalchemy_fairqueue.values.reports import (
        AttemptDetails,
        AuditEntry,
        ConsumerInfo,
        Contention,
        MoveOutcome,
        RetryNowOutcome,
        Trend,
    )

    Ids = int | Iterable[int] | None

_SCAN = 10_000
_COUNT = Shape(("pg_catalog.count(*)",))


class DeadLetters(Facet[QueueBase]):
    """Dead letters of a queue, as ``queue.dead_letters``: all is done at once, since they return what they found.

    On a session or connection they are part of its transaction, and what a session has recorded but not sent is not
    seen; on an engine they have one of their own. Of ids, channel, kind and keys all that are given must be met.

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
        key: str | None = None,
        ordering_key: str | None = None,
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
            key: Only those that have this key in the channel, which must be given.
            ordering_key: Only those that have this ordering key in the channel, which must be given.
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
        which = _which(message_ids, channel, kind, key, ordering_key)
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
        key: str | None = None,
        ordering_key: str | None = None,
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
            key: Only those that have this key in the channel, which must be given.
            ordering_key: Only those that have this ordering key in the channel, which must be given.
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
        which = _which(message_ids, channel, kind, key, ordering_key)
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
        key: str | None = None,
        ordering_key: str | None = None,
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
            key: Only those that have this key in the channel, which must be given.
            ordering_key: Only those that have this ordering key in the channel, which must be given.
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
        which = _which(message_ids, channel, kind, key, ordering_key)
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


def _which(
    message_ids: Ids,
    channel: str | None = None,
    kind: str | None = None,
    key: str | None = None,
    ordering_key: str | None = None,
) -> dict[str, Any]:
    """Return the parameters that name dead letters. What is given must all be met; None restricts nothing."""
    names = {"channel": channel, "kind": kind, "key": key, "ordering_key": ordering_key}
    check_names(**names)
    if channel is None and (key or ordering_key) is not None:
        raise InvalidArgument(
            f"key is {key!r:.80}, ordering_key {ordering_key!r:.80} without a channel; they belong to one: give it"
        )
    return {"ids": None if message_ids is None else checked_ids(message_ids), **names}


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


def _position(after: object) -> HistoryPosition:
    """Read the position at which the page before ended, from its ``next``."""
    try:
        xid, last_id = map(int, after.split(".")) if isinstance(after, str) else (0, 0)
    except ValueError:
        xid, last_id = 0, 0
    if 0 < xid < 2**63 and 0 < last_id < 2**63:
        return HistoryPosition(xid, last_id)
    raise InvalidArgument(f"after is {after!r:.80}; give page.next of the page before, with the same filters")


class Admin(Facet[QueueBase]):
    """What operators do rarely, as ``queue.admin``: done at once, since it returns what it found.

    On a session or connection it is part of its transaction, on an engine it has one of its own.

    Example:
        >>> queue.admin.consumers(engine)
        []
    """

    @verb
    def move(self, where: Where, message_id: int | None, channel: str) -> MoveOutcome:
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

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.admin.move(engine, message_id, "customer-8")
            'moved'
        """
        checked = check_message_id(message_id)
        check_name("channel", channel)
        call = self._target.call(
            "fq_move_message",
            f"move message {checked} of {self._target.named()} to channel {channel!r}",
            message_id=checked,
            channel=channel,
            policy=new_policy_json(self._queue.defaults),
            notify=self._target.notify,
        )
        return self._ask(where, call.value, settles=True)

    @verb
    def retry_now(
        self,
        where: Where,
        message_id: int | None = None,
        *,
        channel: str | None = None,
        key: str | None = None,
        ordering_key: str | None = None,
    ) -> RetryNowOutcome:
        """Let a message be tried at once: one that waits for its time, or for its next attempt, or that is dead.

        A waiting message is due now, and stands in its channel as if it had been enqueued without a delay. Its attempts
        stay counted. A dead letter is redriven, as by ``queue.dead_letters.redrive``. Limits, rates and pauses hold as
        ever.

        In the lock order it counts as a settlement: the transaction cannot enqueue afterwards. Use an engine, or a
        transaction of its own. It waits for one that delivers, settles, cancels or replaces the message, and locks it;
        of a dead letter it locks what a redrive locks.

        Args:
            where: A session, Connection or Engine.
            message_id: The message, or the dead letter.
            channel: Instead of the id, with *key* or *ordering_key* or both: the channel of a message that is not dead.
            key: The key that it holds.
            ordering_key: Its ordering key; of several messages the one that is out, or else the next.

        Returns:
            "due"; "unchanged": it was due already; "redriven": it was dead; "leased": a consumer holds it; "duplicate":
            it is dead, and another message holds its key, so that it stays dead; "missing": done, withdrawn, or of
            another queue.

        Raises:
            InvalidArgument: A bad argument.
            AutocommitError: On a session or connection in AUTOCOMMIT.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(hours=1)).message_id
            >>> queue.admin.retry_now(engine, message_id)
            'due'
        """
        name = checked_name(message_id, channel, key, ordering_key)

        def work(connection: Connection) -> RetryNowOutcome:
            wanted = message_id if name is None else first_named(connection, self._target, name)
            if wanted is None:
                return "missing"
            doing = f"make message {wanted} of {self._target.named()} due"
            make_due = self._target.call("fq_make_due", doing, message_id=wanted, notify=self._target.notify)
            outcome: RetryNowOutcome = make_due.value(connection)
            if outcome == "missing":
                [(_, outcome)] = redriving(self._target, **_which(wanted)).rows(connection)
            return outcome

        return self._ask(where, work, settles=True)

    @verb
    def attempts(self, where: Where, message_id: int | None, *, limit: int = 100) -> tuple[AttemptDetails, ...]:
        """Return the attempts at a message that have ended, the oldest first, also if it is done or dead.

        The last one of a message that is done was "completed" or "cancelled". A message that was withdrawn before it
        was delivered, or purged, has none of these. A queue records attempts after
        ``queue.configure(where, history=True)``, and keeps them for its retention. An attempt that a worker did
        not end shows as "expired", when its lease was found to be over. It costs an index probe a day that is kept, and
        what is returned.

        Args:
            where: A session, Connection or Engine.
            message_id: The message.
            limit: Most to return, the last ones, 1 to 10,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.configure(engine, history=True)
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.retry(engine, queue.dequeue(engine), error="busy")
            >>> [attempt.error for attempt in queue.admin.attempts(engine, message_id)]
            ['busy']
        """
        checked = check_message_id(message_id)
        check_count("limit", limit, 1, 10_000)

        def work(connection: Connection) -> tuple[AttemptDetails, ...]:
            return tuple(read_message_attempts(connection, self._target, checked, limit=limit, chars=ERROR))

        return self._ask(where, work)

    @verb
    def count_undelivered(
        self,
        where: Where,
        channel: str,
        *,
        key: str | None = None,
        ordering_key: str | None = None,
        kind: str | None = None,
        state: UndeliveredState | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100_000,
    ) -> int:
        """Count the messages that ``queue.purge`` with the same arguments would delete. It reads and costs the same.

        Args:
            where: A session, Connection or Engine.
            channel: The channel.
            key: Only the one that has this key.
            ordering_key: Only those that have this ordering key.
            kind: Only those of this kind.
            state: Only those that are "ready", "scheduled" or "held" now.
            since: Only those that were enqueued then or later (aware).
            until: Only those that were enqueued before then (aware).
            limit: Count up to so many, 1 to 1,000,000,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
            >>> queue.admin.count_undelivered(engine, "customer-7", kind="parse")
            1
        """
        which = Undelivered(
            channel=channel, key=key, ordering_key=ordering_key, kind=kind, state=state, since=since, until=until
        )
        check_count("limit", limit, 1, 10**9)
        doing = f"count messages of {self._target.named(channel)}"
        call = self._target.call("fq_undelivered", doing, _COUNT, limit=limit, **which.parameters())
        count: int = self._ask(where, call.value)
        return count

    @verb
    def recent_attempts(
        self,
        where: Where,
        *,
        channel: str | None = None,
        kind: str | None = None,
        outcome: AttemptOutcome | None = None,
        limit: int = 100,
        after: str | None = None,
        scan: int = _SCAN,
    ) -> AttemptPage:
        """Return a page of attempts that have ended, the last recorded first: with "completed", messages that are done.

        A queue records them after ``queue.configure(where, history=True)``, and keeps them for its retention. All
        filters that are given must be met. No index helps with them: the call reads *scan* attempts of all queues of
        the schema at most, about 2 us each. So a page may be empty although it is not the last one.

        Args:
            where: A session, Connection or Engine.
            channel: Only those at messages of this channel.
            kind: Only those at messages of this kind.
            outcome: Only those that ended so.
            limit: Most to return, 1 to 10,000.
            after: ``page.next`` of the page before, with the same filters.
            scan: Most attempts to read, 1 to 1,000,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.configure(engine, history=True)
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.complete(engine, queue.dequeue(engine))
            >>> [attempt] = queue.admin.recent_attempts(engine, channel="customer-7", outcome="completed")
            >>> attempt.message_id == message_id
            True
        """
        check_names(channel=channel, kind=kind)
        if outcome is not None:
            check_choice("outcome", outcome, get_args(AttemptOutcome))
        check_count("limit", limit, 1, 10_000)
        check_count("scan", scan, 1, 1_000_000)
        read = partial(
            read_recent_attempts,
            target=self._target,
            channel=channel,
            kind=kind,
            outcome=outcome,
            after=None if after is None else _position(after),
            limit=limit,
            scan=scan,
            chars=ERROR,
        )

        def work(connection: Connection) -> AttemptPage:
            attempts, end = read(connection)
            return AttemptPage(tuple(attempts), None if end is None else ".".join(map(str, end)))

        return self._ask(where, work)

    @verb
    def record_audit(
        self,
        where: Where,
        what: str,
        *,
        by: str | None = None,
        channel: str | None = None,
        message_ids: int | Iterable[int] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Record that somebody did something to the queue, or to a channel or messages of it.

        The command line and the dashboard record what they change in the transaction that changes it. Call this in
        yours to have your own tools among them. Housekeeping deletes the rows after 90 days.

        Args:
            where: A session, Connection or Engine. On a session or connection it is part of its transaction.
            what: What was done, such as "pause".
            by: Who did it. Default: the role of the database.
            channel: To which channel.
            message_ids: To which messages: a row for each.
            details: More about it, as JSON.

        Raises:
            InvalidArgument: A bad name.

        Example:
            >>> with Session(engine) as session, session.begin():
            ...     queue.pause(session, "customer-7", new=True)
            ...     queue.admin.record_audit(session, "pause", by="dana", channel="customer-7")
        """
        check_name("what", what)
        check_names(by=by, channel=channel)
        call = self._target.call(
            "fq_record_audit",
            f"record what was done to {self._target.named(channel)}",
            what=what,
            by=by,
            channel=channel,
            message_ids=None if message_ids is None else checked_ids(message_ids),
            details=None if details is None else json.dumps(details, default=str),
        )

        def work(connection: Connection) -> None:
            call.rows(connection)

        return self._ask(where, work)

    @verb
    def audits(
        self,
        where: Where,
        *,
        channel: str | None = None,
        message_id: int | None = None,
        before: datetime | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Return what was done to the queue, the last first: who paused it, cancelled, purged, redrove, configured.

        It reads what it returns, by an index.

        Args:
            where: A session, Connection or Engine.
            channel: Only what was done to this channel.
            message_id: Only what was done to this message.
            before: Only what was done before then (aware): the time of the last one of the page before.
            limit: Most to return, 1 to 10,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.admin.record_audit(engine, "purge", by="dana", channel="customer-7", details={"purged": 12})
            >>> [(entry.who, entry.what, entry.details) for entry in queue.admin.audits(engine)]
            [('dana', 'purge', {'purged': 12})]
        """
        check_names(channel=channel)
        if message_id is not None:
            check_message_id(message_id)
        if before is not None:
            check_instant("before", before)
        check_count("limit", limit, 1, 10_000)
        asked = partial(read_audits, target=self._target, channel=channel, message_id=message_id, before=before)
        return self._ask(where, partial(asked, limit=limit))

    @verb
    def stop_worker(self, where: Where, consumer: str, *, by: str | None = None) -> bool:
        """Ask a worker to stop gracefully, as at a SIGTERM: with its own grace, and from all of its queues.

        The worker polls for it and hears of it within about two seconds after the commit, also if it waits for work or
        all of its handlers are busy; its log says who asked. Every worker of the queue with this name stops, also in
        other processes. A worker that starts after the commit does not. So a supervisor that starts workers again
        after each end starts this one again, too.

        On a session or connection the request is part of the transaction, on an engine it has one of its own. It waits
        for another transaction that has asked the same consumer.

        Args:
            where: A session, Connection or Engine.
            consumer: The worker's name, as :meth:`consumers` shows it.
            by: Who asks, for the worker's log. Default: the role of the database.

        Returns:
            Whether a consumer of that name has a lease that has not expired. False: there is probably none, or it has
            just started; the request stands all the same.

        Raises:
            InvalidArgument: A bad name.

        Example:
            >>> queue.admin.stop_worker(engine, "worker-1", by="alice")  # nobody of that name works on the queue
            False
        """
        check_name("consumer", consumer)
        check_names(by=by)
        doing = f"ask consumer {consumer!r} of {self._target.named()} to stop"
        is_there: bool = self._ask(where, self._target.call("fq_request_stop", doing, consumer=consumer, by=by).value)
        return is_there

    @verb
    def consumers(self, where: Where, *, limit: int = 100) -> list[ConsumerInfo]:
        """Return the consumers whose lease has not expired, and what each holds, the most messages first.

        Args:
            where: A session, connection or engine.
            limit: Most consumers to return, 1 to 100,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.admin.consumers(engine)
            []
        """
        check_count("limit", limit, 1, 100_000)
        return self._ask(where, partial(read_consumers, target=self._target, limit=limit))

    @verb
    def contention(self, where: Where, *, limit: int = 100) -> Contention:
        """Return the channels that wait longest and those with the most messages out, with what decides the turn.

        It costs about what ``queue.stats`` costs.

        Args:
            where: A session, connection or engine.
            limit: Most channels of each of the two sorts, 1 to 100,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> contention = queue.admin.contention(engine)
        """
        check_count("limit", limit, 1, 100_000)
        return self._ask(where, partial(read_contention, target=self._target, limit=limit))

    @verb
    def trend(self, where: Where, *, channel: str | None = None, over: timedelta = timedelta(hours=1)) -> Trend:
        """Return the queue or a channel over the last hours: backlog, oldest wait, served, failed, times of handlers.

        Workers keep a sample of their queues each minute, for 25 hours: of the queue, and of the 20 channels with the
        longest backlogs. What was served, and the times of handlers, are known of queues that record their history. It
        reads the samples of that time and 10,000 attempts of the history, whatever the queue has.

        Args:
            where: A session, connection or engine.
            channel: This channel. None: the queue.
            over: How far back it looks, a minute to a day. Up to 100 minutes come in steps of a minute, up to 500 in
                steps of five, more in steps of fifteen.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> trend = queue.admin.trend(engine, over=timedelta(hours=1))
            >>> len(trend.points)
            60
        """
        check_names(channel=channel)
        check_duration("over", over, timedelta(minutes=1))
        if over > timedelta(days=1):
            raise InvalidArgument(f"over is {over}; samples are kept for a day: give at most that")
        return self._ask(where, partial(read_trend, target=self._target, channel=channel, over=over))
