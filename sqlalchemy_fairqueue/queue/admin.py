"""Facets for operators: dead letters, and rare operations, such as erasing a channel or stopping a worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, get_args

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.codecs import decoded, headers_of
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.calls import Call, Shape, Target, call
from sqlalchemy_fairqueue.database.engines import on, refused
from sqlalchemy_fairqueue.database.messages import make_due, read_attempts, read_message_attempts, record_audit
from sqlalchemy_fairqueue.database.stats import read_channel_stats, read_consumers, read_contention, read_trend
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.queue.base import Facet, QueueBase, Where, on_engine, verb
from sqlalchemy_fairqueue.queue.lookups import ERROR, MessageNameWords, checked_message
from sqlalchemy_fairqueue.values.checks import (
    IDS,
    check_choice,
    check_count,
    check_duration,
    check_instant,
    check_message_id,
    check_name,
    check_names,
    check_page,
    checked_position,
)
from sqlalchemy_fairqueue.values.messages import DeadLetterFilters, UndeliveredFilters, checked_filters, undelivered
from sqlalchemy_fairqueue.values.reports import (
    AttemptDetails,
    AttemptOutcome,
    AttemptPage,
    AuditEntry,
    ConsumerInfo,
    Contention,
    DeadLetterInfo,
    Erasure,
    MoveOutcome,
    RetryNowOutcome,
    Trend,
)

if TYPE_CHECKING:
    import builtins

    Ids = int | Iterable[int] | None

_SCAN = 10_000
_ERASED = 10_000
"""Most rows of each table that one transaction of ``erase`` deletes."""
_COUNT = Shape(("pg_catalog.count(*)",))


class DeadLetters(Facet[QueueBase]):
    """Dead letters of a queue, as ``queue.dead_letters``. Each call, ``purge`` too, is sent at once, even on a session.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse").message_id
        >>> queue.bury(engine, queue.dequeue(engine), reason="not a file")
        >>> [(letter.reason, letter.payload) for letter in queue.dead_letters.list(engine, kind="parse")]
        [('not a file', 1)]
        >>> queue.dead_letters.redrive(engine, message_id)[message_id]
        'redriven'
        >>> queue.dead_letters.purge(engine, until=datetime.now(UTC) - timedelta(days=1))
        0
    """

    @verb
    def list(
        self,
        where: Where,
        message_ids: Ids = None,
        *,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after: DeadLetterInfo | None = None,
        **filters: Unpack[DeadLetterFilters],
    ) -> builtins.list[DeadLetterInfo]:
        """Return the dead letters that match all filters, at most *limit* (1 to 100,000), the oldest first.

        Args:
            error: A text in the reason or the error. No index helps to find it, so give other filters too.
            since: Only letters whose message died at this time (aware) or later.
            until: Only letters whose message died before this time (aware).
            after: The last dead letter of the previous page.
            filters: channel and kind; key and ordering_key, which need a channel.
        """
        which = checked_filters(ids=checked_ids(message_ids), since=since, until=until, error=error, **filters)
        check_names(error=error)
        check_count("limit", limit, 1, 100_000)
        check_page("after", after, DeadLetterInfo)
        died_at, message_id = (None, None) if after is None else (after.died_at, after.message_id)
        which |= {"died_at": died_at, "message_id": message_id, "limit": limit}
        return self._read(where, "fq_dead_letters", "read the dead letters of", self._letter, **which)

    def _letter(self, *, headers: str | None, unreadable: str | None, **row: Any) -> DeadLetterInfo:
        read_headers, refused = headers_of(headers)
        if unreadable is not None:
            refused = PayloadError(f"dead letter {row['message_id']} cannot be read: {unreadable}; purge it")
            row["error"] = str(refused)
        row |= {name: row[name] or "" for name in ("channel", "kind", "reason")}
        result = refused or decoded(self._queue.codec, row["content"], row["kind"])
        row["content"] = row["content"] or b""
        return DeadLetterInfo(queue=self._queue.name, headers=read_headers, decoded=result, **row)

    @verb
    def redrive(
        self, where: Where, message_ids: Ids = None, *, limit: int = 1000, **filters: Unpack[DeadLetterFilters]
    ) -> dict[int, str]:
        """Turn dead letters into ready messages again. Return the outcome of each dead letter by its id.

        The outcome is "redriven"; "duplicate" if another message holds the key, so that the letter stays dead; or
        "missing" if no dead letter has the id and matches the filters. A redriven message keeps its id and begins with
        zero attempts. Its priority and the time of the call decide its place in the channel. Of the messages of one
        call that have no priority, the one that died first goes first. A full channel takes redriven messages too.

        With ids, the call tries these dead letters, and waits for another redrive or purge of them. Without ids, the
        call tries at most *limit* (1 to 100,000) dead letters, the oldest first, and skips locked ones. Dead letters
        whose key another message holds come last. To redrive all, repeat the call until no outcome is "redriven".

        The call locks the dead letters and their keys, and waits for transactions that add or settle messages with
        these keys. The call counts as a settlement in the lock order. So an enqueue that is sent later in its
        transaction, also by a session's COMMIT, raises LockOrderError. On a connection in AUTOCOMMIT the call raises
        AutocommitError.
        """
        which = checked_filters(ids=checked_ids(message_ids), **filters)
        check_count("limit", limit, 1, 100_000)
        call = redriving(self._target, limit=limit, **which)
        return self._ask(where, lambda connection: dict(map(tuple, call.rows(connection))), settles=True)

    @verb
    def purge(
        self,
        where: Where,
        message_ids: Ids = None,
        *,
        until: datetime | None = None,
        before: datetime | None = None,
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Delete dead letters for good, and return how many. If only *where* is given, delete all dead letters.

        The call deletes the dead letters that match the ids, the filters and *until* (aware), which matches messages
        that died before this time. The filters are as for :meth:`list`. *before* is the former name of *until*. The
        call locks the dead letters. With ids it waits for another redrive or purge of these dead letters. Without ids
        it skips locked dead letters.
        """
        which = checked_filters(ids=checked_ids(message_ids), **filters)
        for name, time in (("until", until), ("before", before)):
            if time is not None:
                check_instant(name, time)
        if until is not None and before is not None:
            raise InvalidArgument(f"until is {until} and before is {before}: both say the same; give one")
        call = self._target.call("fq_purge_dead", "purge dead letters of", before=until or before, **which)
        deleted: int = self._ask(where, call.value)
        return deleted


def redriving(target: Target, *, limit: int = 1, **which: Any) -> Call:
    """Return the database call that redrives dead letters. Each row of its answer is an id and an outcome."""
    return target.call("fq_redrive", "redrive dead letters of", limit=limit, notify=target.notify, **which)


def checked_ids(message_ids: Ids) -> list[int] | None:
    if message_ids is None:
        return None
    given: object = message_ids
    if isinstance(given, str) or not isinstance(given, (int, Iterable)):
        raise InvalidArgument(f"message_ids is {given!r:.80}; give an id or several")
    ids = [given] if isinstance(given, int) else list(given)
    for message_id in ids:
        check_count("message_ids", message_id, 1, 2**63 - 1)
    return ids


class Admin(Facet[QueueBase]):
    """Rare operations of operators, as ``queue.admin``. Each call is sent at once, also on a session.

    Example:
        >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(hours=1)).message_id
        >>> queue.admin.move(engine, message_id, "customer-8"), queue.admin.retry_now(engine, message_id)
        ('moved', 'due')
        >>> queue.admin.count_undelivered(engine, "customer-8"), len(queue.admin.contention(engine).channels)
        (1, 1)
        >>> queue.admin.consumers(engine), len(queue.admin.trend(engine, over=timedelta(hours=1)).points)
        ([], 60)
        >>> queue.admin.stop_worker(engine, "worker-1", by="alice")  # nobody of that name works on the queue
        False
        >>> queue.admin.erase(engine, "customer-8").messages
        1
    """

    @verb
    def move(self, where: Where, message_id: int | None, channel: str) -> MoveOutcome:
        """Move an undelivered message to *channel* of the same queue. Its time and priority decide its place there.

        The message keeps its id, key, payload and attempts. A missing *channel* is created. max_backlog does not apply.
        The outcome is "moved"; "unchanged" if it is in *channel* already; "leased" if a consumer holds it; "duplicate"
        if another message of *channel* has its key; "missing" if it is done, dead, withdrawn or in another queue.

        The call counts as a settlement in the lock order. So an enqueue that is sent later in its transaction, also by
        a session's COMMIT, raises LockOrderError. On a connection in AUTOCOMMIT the call raises AutocommitError. The
        call locks the message and its key in *channel*. If the call creates *channel*, it locks *channel* too. The call
        waits for transactions that create *channel* or add the key to it, then for a transaction that delivers,
        settles, cancels or replaces the message. A cancel that waits for the move still takes effect.
        """
        checked = check_message_id(message_id)
        check_name("channel", channel)
        call = self._target.call(
            "fq_move_message",
            f"move message {checked} to",
            message_id=checked,
            channel=channel,
            policy=self._target.policy,
            notify=self._target.notify,
        )
        return self._ask(where, call.value, settles=True)

    @verb
    def retry_now(
        self, where: Where, message_id: int | None = None, **named: Unpack[MessageNameWords]
    ) -> RetryNowOutcome:
        """Let a message be due now: a scheduled message, a message that waits for its next attempt, or a dead letter.

        A dead letter is redriven, as by ``queue.dead_letters.redrive``. Any other message gets the place in its channel
        that it would have if it had been due ever since its enqueue. Its attempts stay counted. Limits, rates and
        pauses still apply.

        Instead of the id you can give a *channel* with a *key*, an *ordering_key* or both. A dead letter is found only
        by its id. If several messages have the ordering key and one of them is leased, the call chooses the leased
        message, and so changes nothing. If none of them is leased, the call chooses the message that goes next.

        The outcome is "due"; "unchanged" if the message was ready or held; "leased" if a consumer holds it; "redriven"
        if it was dead; "duplicate" if it is dead and another message holds its key; "missing" otherwise.

        The call counts as a settlement in the lock order. So an enqueue that is sent later in its transaction, also by
        a session's COMMIT, raises LockOrderError. On a connection in AUTOCOMMIT the call raises AutocommitError. The
        call locks the message, and waits for a transaction that delivers, settles, cancels or replaces the message. For
        a dead letter it takes the locks of a redrive.
        """
        wanted = checked_message(message_id, **named)

        def work(connection: Connection) -> RetryNowOutcome:
            outcome: RetryNowOutcome = make_due(self._target, wanted).value(connection)
            if outcome == "missing" and isinstance(wanted, int):
                [(_, outcome)] = redriving(self._target, **checked_filters(ids=[wanted])).rows(connection)
            return outcome

        return self._ask(where, work, settles=True)

    @verb
    def attempts(self, where: Where, message_id: int | None, *, limit: int = 100) -> tuple[AttemptDetails, ...]:
        """Return the ended attempts at a message, the oldest first.

        If there are more than *limit* (1 to 10,000), the call returns only the latest *limit* attempts. The call
        finds attempts at done and dead messages too. A queue records attempts after ``queue.configure(where,
        history=True)``, and keeps them for its history_retention. If a worker dies, its attempt is recorded as
        "expired" when the message is reclaimed. The call costs one index probe for each day of history.

        Example:
            >>> queue.configure(engine, history=True)
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.retry(engine, queue.dequeue(engine), error="busy")
            >>> [attempt.error for attempt in queue.admin.attempts(engine, message_id)]
            ['busy']
            >>> [attempt.channel for attempt in queue.admin.recent_attempts(engine, outcome="retried")]
            ['customer-7']
        """
        checked = check_message_id(message_id)
        check_count("limit", limit, 1, 10_000)

        def work(connection: Connection) -> tuple[AttemptDetails, ...]:
            return tuple(read_message_attempts(connection, self._target, checked, limit=limit, chars=ERROR))

        return self._ask(where, work)

    @verb
    def count_undelivered(
        self, where: Where, channel: str, *, limit: int = 100_000, **filters: Unpack[UndeliveredFilters]
    ) -> int:
        """Count the messages that ``queue.purge`` with the same filters would delete, at most *limit* (1 to 10**9)."""
        which = undelivered(channel, **filters)
        check_count("limit", limit, 1, 10**9)
        call = self._target.call("fq_undelivered", "count messages of", _COUNT, limit=limit, **which)
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
        """Return a page of ended attempts that match all filters, the last recorded first.

        A page has at most *limit* (1 to 10,000) attempts. No index helps: the call reads at most *scan* (1 to
        1,000,000) attempts of all queues of the schema, about 2 us each. So a page before the last may be empty. To get
        the next page, give ``page.next`` as *after* and the same filters.
        """
        check_names(channel=channel, kind=kind)
        if outcome is not None:
            check_choice("outcome", outcome, get_args(AttemptOutcome))
        check_count("limit", limit, 1, 10_000)
        check_count("scan", scan, 1, 1_000_000)
        xid, last_id = (None, None) if after is None else checked_position(after, "filters", IDS, IDS)
        which = {"channel": channel, "kind": kind, "outcome": outcome, "xid": xid, "id": last_id}

        def work(connection: Connection) -> AttemptPage:
            attempts, end = read_attempts(connection, self._target, limit=limit, scan=scan, chars=ERROR, **which)
            return AttemptPage(tuple(attempts), end)

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
        """Record an action on the queue, a channel or messages. :meth:`audits` returns recorded actions.

        Use this call in your own tools, in the transaction that makes the change; the command line and the dashboard do
        so. Housekeeping deletes the records after 90 days. Each of several messages gets its own record. *by* is who
        did it, by default the database role. *details* is anything else, as JSON.

        Example:
            >>> with Session(engine) as session, session.begin():
            ...     queue.pause(session, "customer-7", new=True)
            ...     queue.admin.record_audit(session, "pause", by="dana", channel="customer-7")
            >>> [(entry.who, entry.what) for entry in queue.admin.audits(engine)]
            [('dana', 'pause')]
        """
        check_name("what", what)
        check_names(by=by, channel=channel)
        ids = checked_ids(message_ids)
        record = partial(
            record_audit, schema=self._target.schema, queue=self._target.queue,
            what=what, by=by, channel=channel, message_ids=ids, details=details,
        )  # fmt: skip
        return self._ask(where, record)

    @verb
    def audits(
        self,
        where: Where,
        *,
        channel: str | None = None,
        message_id: int | None = None,
        before: AuditEntry | datetime | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Return recorded actions on the queue, at most *limit* (1 to 10,000), the newest first.

        Without *channel* and *message_id* these include actions on the installation, such as on shared limits. With a
        channel or a message the call is slower: it also reads actions that do not match, until *limit* match. *before*
        is the last action of the previous page, or a time (aware): earlier actions are returned.
        """
        check_names(channel=channel)
        if message_id is not None:
            check_message_id(message_id)
        if before is not None and not isinstance(before, AuditEntry):
            check_instant("before", before)
        check_count("limit", limit, 1, 10_000)
        at, last_id = (before.at, before.audit_id) if isinstance(before, AuditEntry) else (before, None)
        about = {"channel": channel, "message_id": message_id}
        page = {"before": at, "before_id": last_id, "limit": limit}
        return self._read(where, "fq_audits", "read what was done to", _entry, **about, **page)

    @on_engine
    def erase(self, engine: Engine, channel: str) -> Erasure:
        """Delete all that the queue has of a channel, including leased messages, and the channel itself.

        If a handler holds a message of the channel, the handler's settlement raises LeaseLost, and its writes in that
        transaction are rolled back. Members of groups count as cancelled. Copies outside of the queue stay: archives
        and tables that Spark wrote, logs, traces.

        First stop what enqueues to the channel, and remove its schedules from code; otherwise the channel is created
        again. The call deletes in several transactions. If it fails half-way, or ``left_over`` of the result is not 0,
        call it again. It reads the history and the results of all channels, about 2 us a row.
        """
        if not isinstance(engine, (Engine, AsyncEngine)):
            raise refused(engine, "an engine")
        check_name("channel", channel)
        forget = call(self._target.schema, "fq_forget_channels", "forget idle channels", limit=_ERASED)

        def erase(engine: Engine) -> Erasure:
            counts: Counter[str] = Counter()
            after: int | None = 0
            while after is not None:
                batch = self._target.call("fq_erase_channel", "erase", channel=channel, limit=_ERASED, after=after)
                [row] = self._ask(engine, batch.rows)
                found = row._asdict()
                after, known = found.pop("after"), counts["left_over"]
                counts.update(found | {"left_over": max(0, found["left_over"] - known)})
            # fq_erase_channel has marked the channel if nothing was left over. The first call may only note which
            # transactions run now. The second call deletes the channel if all of these have ended.
            for _ in range(2):
                self._ask(engine, forget.rows)
            stats = partial(read_channel_stats, target=self._target, channels=[channel], limit=1)
            return Erasure(**counts, forgotten=not self._ask(engine, stats))

        return on(engine, erase)

    @verb
    def stop_worker(self, where: Where, consumer: str, *, by: str | None = None) -> bool:
        """Ask the queue's worker *consumer* to stop gracefully, as SIGTERM does. If several have this name, all stop.

        A worker sees the request within about two seconds after the commit, even if it is idle or all of its handlers
        are busy. It stops for all queues that it serves, within its grace, and logs who asked (*by*, or else the
        database role). A worker that starts after the commit ignores the request. The call waits for other transactions
        that have asked the same worker. It returns whether a consumer of that name has an unexpired lease in this
        queue. An idle worker may have no lease, so a worker can stop although the result is False.
        """
        check_name("consumer", consumer)
        check_names(by=by)
        doing = f"ask consumer {consumer!r} to stop in"
        is_there: bool = self._ask(where, self._target.call("fq_request_stop", doing, consumer=consumer, by=by).value)
        return is_there

    @verb
    def consumers(self, where: Where, *, limit: int = 100, handlers: int = 0) -> list[ConsumerInfo]:
        """Return at most *limit* (1 to 100,000) consumers with an unexpired lease, those with the most messages first.

        ``ConsumerInfo.handlers`` has at most *handlers* (0 to 10,000) of the consumer's leased messages, whether a
        handler works on them or not. They are the messages that the consumer has held longest. In a queue without a
        history, they are the messages with the lowest ids.
        """
        check_count("limit", limit, 1, 100_000)
        check_count("handlers", handlers, 0, 10_000)
        return self._ask(where, partial(read_consumers, target=self._target, limit=limit, handlers=handlers))

    @verb
    def contention(self, where: Where, *, limit: int = 100) -> Contention:
        """Return which channels wait longest, which have the most leased messages, and what decides their turns.

        The call returns at most *limit* (1 to 100,000) channels that wait longest, at most *limit* with the most leased
        messages, and at most *limit* with held or scheduled messages but no ready one. All are in one list: the longest
        wait first, channels without a ready message last, by name. The call costs about as much as ``queue.stats``.
        """
        check_count("limit", limit, 1, 100_000)
        return self._ask(where, partial(read_contention, target=self._target, limit=limit))

    @verb
    def trend(self, where: Where, *, channel: str | None = None, over: timedelta = timedelta(hours=1)) -> Trend:
        """Return how a queue or channel developed: backlog, oldest wait, served and failed attempts, times of handlers.

        Each minute, workers store a sample of their queues and of the 20 channels with the longest backlogs. Only a
        queue with a history knows what was served, and how long handlers took. The call reads at most 10,000 attempts.

        *over* is how far back to look, a minute to a day. The points are 1, 5 or 15 minutes apart, 100 at most.
        """
        check_names(channel=channel)
        check_duration("over", over, timedelta(minutes=1))
        if over > timedelta(days=1):
            raise InvalidArgument(f"over is {over}; samples are kept for a day: give at most that")
        return self._ask(where, partial(read_trend, target=self._target, channel=channel, over=over))


def _entry(*, details: str | None, **row: Any) -> AuditEntry:
    return AuditEntry(details=None if details is None else json.loads(details), **row)
