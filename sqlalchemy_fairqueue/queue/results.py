"""Results of handlers: encode them, read them, and wait for them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import uuid4

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.codecs import Codec, decoded
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.deliveries import EncodedResult
from sqlalchemy_fairqueue.database.engines import on
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from sqlalchemy_fairqueue.database.messages import FoundResult, read_results
from sqlalchemy_fairqueue.errors import (
    HandlerWaitWarning,
    InvalidArgument,
    MessageFailed,
    PayloadError,
    ResultCancelled,
    ResultNotKept,
    ResultNotReady,
    UnknownMessage,
)
from sqlalchemy_fairqueue.queue.base import Where, verb
from sqlalchemy_fairqueue.queue.contexts import handling
from sqlalchemy_fairqueue.queue.handlers import HandlerMethods
from sqlalchemy_fairqueue.queue.signatures import warn
from sqlalchemy_fairqueue.texts import clean, said
from sqlalchemy_fairqueue.values.checks import RESULT_BYTES, check_duration, check_message_id, check_names
from sqlalchemy_fairqueue.watching import ResultWatch, watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.queue.payloads import PayloadSchema

# Seconds between two polls of a wait. The first polls come soon, since a transaction that began before the wait was
# registered does not notify. After these, a poll comes every LONGEST_POLL seconds. It finds messages that end without
# a notification, such as a message whose worker died in the last attempt.
FIRST_POLLS = (0.02, 0.1, 0.5, 2.5)
LONGEST_POLL = 5.0
# Seconds between two polls while notifications do not arrive.
POLL_UNNOTIFIED = 0.5
# How long a registration of a wait is valid. A wait that goes on is registered again after half of this time, and the
# registration of a dead process expires.
_REGISTERED = timedelta(seconds=60)
_PROBLEM = 2_000
_READ_ONLY = "25006"


class ResultOptions(TypedDict, total=False):
    """The options of ``result``: which channel the message must be in, and how long to wait for its end."""

    channel: str | None
    timeout: timedelta | None


@dataclass(frozen=True, slots=True)
class ResultQuestion:
    """The question how a message ended. The message must have *channel* and *kind*, if given. *timeout* ends waits."""

    message_id: int
    channel: str | None = None
    timeout: timedelta | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        check_names(channel=self.channel)
        if self.timeout is not None:
            object.__setattr__(self, "timeout", check_duration("timeout", self.timeout))

    def answer(self, connection: Connection, target: Target) -> FoundResult:
        """Return how the message ended; "unknown" if *channel* is given and the message is not known to be in it."""
        [found] = read_results(connection, target, [self.message_id])
        return found if self.channel in {None, found.channel} else FoundResult(state="unknown")


class ResultMethods(HandlerMethods):
    """The verb ``result``: read or wait for what a handler returned. It needs the grant "producer" or "operator"."""

    @verb
    def result(
        self, where: Where, message_id: int | None, *, channel: str | None = None, timeout: timedelta | None = None
    ) -> Any:
        """Return what the handler returned, if ``configure(where, result_retention=...)`` makes the queue keep it.

        The value is decoded like a payload. If the kind is a job of this queue, the value has the annotated return
        type. The value is None if a verb completed the message without a result.

        Args:
            message_id: None, the id in the receipt of a dropped message, raises InvalidArgument.
            channel: The channel that the message must be in. Give it if a tenant asks, since anybody can guess ids. A
                message of another channel raises UnknownMessage. With a *channel*, a message of which nothing is kept
                raises UnknownMessage too, since its channel is no longer known. None: any channel.
            timeout: How long to wait for the end of the message; needs an Engine. None: do not wait. Waiting holds no
                connection of the pool; all waits of an engine share one listening connection. A handler that waits
                occupies its place in the worker and gets a HandlerWaitWarning; use a :meth:`group` instead.

        Raises:
            ResultError: A subclass says why: ResultNotReady, which is a TimeoutError (not ended, or not in time),
                MessageFailed (a dead letter), ResultCancelled, ResultNotKept (ended, but no result of it is kept),
                UnknownMessage (never in this queue, or not known to be in the *channel*).
            PayloadError: The codec cannot decode the kept value, or the value does not fit the job's annotation.

        Example:
            >>> queue.configure(engine, result_retention=timedelta(hours=1))
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=20).message_id
            >>> [delivery] = queue.dequeue(engine)
            >>> queue.complete(engine, delivery, result=delivery.payload + 1)
            >>> queue.result(engine, message_id, channel="customer-7", timeout=timedelta(seconds=5))
            21
        """
        return self._result(where, ResultQuestion(check_message_id(message_id), channel, timeout))

    def _result(self, where: Where, asked: ResultQuestion) -> Any:
        _check_wait(where, asked)
        return on(where, lambda sync: self._value(asked, self._found(sync, asked)))

    def _found(self, where: Where, asked: ResultQuestion) -> FoundResult:
        found = self._ask(where, partial(asked.answer, target=self._target))
        if asked.timeout is not None and isinstance(where, Engine) and found.state == "pending":
            found = self._wait(where, asked, asked.timeout)
        if asked.kind not in {None, found.kind} and found.kind is not None:
            raise InvalidArgument(
                f"message {asked.message_id} of queue {self.name!r} is of kind {found.kind!r}, not of job "
                f"{asked.kind!r}; ask that job, or queue.result"
            )
        return found

    def _wait(self, engine: Engine, asked: ResultQuestion, timeout: timedelta) -> FoundResult:
        event = _LoopEvent() if engine.dialect.is_async else threading.Event()
        wait = _Wait(self, engine, asked, timeout, event.set)
        try:
            while True:
                event.clear()
                found = self._ask(engine, wait.poll)
                if found.state != "pending" or (seconds := wait.seconds()) is None:
                    return found
                event.wait(seconds)
        finally:
            wait.end()
            if wait.is_registered:
                with suppress(Exception):
                    self._ask(engine, wait.unregister)

    def _value(self, asked: ResultQuestion, found: FoundResult) -> Any:
        message_id = asked.message_id
        match found.state:
            case "completed":
                return self._decoded(found)
            case "pending":
                raise ResultNotReady(message_id, asked.timeout)
            case "failed":
                raise MessageFailed(message_id, found.reason or "it could not be read", found.error)
            case "cancelled":
                raise ResultCancelled(message_id)
            case "unkept":
                raise ResultNotKept(message_id, f"what its handler returned could not be kept: {found.reason}")
            case "expired":
                raise ResultNotKept(message_id, f"it was kept until {found.expires_at:%Y-%m-%d %H:%M:%S} UTC")
            case "gone":
                problem = (
                    f"it expired and was deleted, or queue {self.name!r} kept no results when it was delivered "
                    "or completed: see queue.configure(result_retention=...), or the message was purged or rolled back"
                )
                raise ResultNotKept(message_id, problem)
        raise UnknownMessage(message_id, self.name)

    def _decoded(self, found: FoundResult) -> Any:
        handler = self._handlers.get(found.kind or "")
        value = None if found.content is None else decoded(self.codec, found.content)
        if isinstance(value, PayloadError):
            raise value
        return value if handler is None or handler.schema is None else handler.schema.result.value(value)


def _check_wait(where: object, asked: ResultQuestion) -> None:
    if asked.timeout is not None and not isinstance(where, (Engine, AsyncEngine)):
        raise InvalidArgument(
            f"timeout is {asked.timeout} on a {type(where).__name__}, whose transaction would be open meanwhile; give "
            "an engine to wait, or no timeout"
        )
    if asked.timeout and (delivery := handling.get()) is not None:
        warn(
            f"the handler of kind {delivery.kind!r} waits for a result: it keeps its place in the worker meanwhile, "
            "and if all places wait, nothing handles what they wait for; enqueue the messages as a group, whose "
            "follow-up is handled when they have ended: with queue.group(session, then=...) as group",
            HandlerWaitWarning,
        )


class _LoopEvent:
    """A stand-in for ``threading.Event`` on an async engine: ``wait`` suspends the task, and the event loop goes on."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.clear = self._event.clear

    def set(self) -> None:
        # If the loop is closed, nobody waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    def wait(self, seconds: float) -> None:
        # Imported here, since the import needs greenlet.
        from sqlalchemy.util import await_only  # noqa: PLC0415

        await_only(self._within(seconds))

    async def _within(self, seconds: float) -> None:
        # wait_for() of Python 3.11 loses a cancellation that comes with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class _Wait:
    """One wait for the result of a message. Another thread calls *wake* when a poll is worthwhile."""

    def __init__(
        self, queue: ResultMethods, engine: Engine, asked: ResultQuestion, timeout: timedelta, wake: Callable[[], None]
    ) -> None:
        self.is_registered = False
        self._target = queue._target  # noqa: SLF001 - a part of it
        self._asked = asked
        self._wake = wake
        self._waiter = str(uuid4())
        self._over_at = monotonic() + timeout.total_seconds()
        self._register_at = 0.0
        self._polls = 0
        self._watch: ResultWatch | None = None
        watch_of = watching.watch_of
        if queue.notify and watch_of is not None:
            self._watch = watch_of(engine)
            self._watch.join(AsyncEngine(engine) if engine.dialect.is_async else engine, asked.message_id, wake)

    def poll(self, connection: Connection) -> FoundResult:
        """Return how the message ended, or that it has not ended.

        If notifications can wake the wait, first register it in the database, or renew the registration when it is due.
        """
        if self._watch is not None and monotonic() >= self._register_at:
            self._register_at = monotonic() + _REGISTERED.total_seconds() / 2
            # Set before the call, since a task may be cancelled when the database has just registered the wait.
            self.is_registered = True
            try:
                self._register(connection, _REGISTERED)
                connection.commit()
            except DBAPIError as error:
                if sqlstate_of(error) != _READ_ONLY:
                    raise
                # A standby can neither register nor listen.
                connection.rollback()
                self.is_registered = False
                self.end()
        self._polls += 1
        return self._asked.answer(connection, self._target)

    def seconds(self) -> float | None:
        """Return the seconds to wait for a notification before the next poll; None after the timeout."""
        left = self._over_at - monotonic()
        if left <= 0:
            return None
        poll = FIRST_POLLS[self._polls - 1] if self._polls <= len(FIRST_POLLS) else LONGEST_POLL
        if self._watch is None or not self._watch.is_listening:
            poll = min(poll, POLL_UNNOTIFIED)
        return min(poll, left)

    def unregister(self, connection: Connection) -> None:
        self._register(connection, timedelta())

    def _register(self, connection: Connection, wait: timedelta) -> None:
        message_id = self._asked.message_id
        doing = f"wait for the result of message {message_id} of"
        call = self._target.call("fq_wait_for_result", doing, message_id=message_id, waiter=self._waiter, wait=wait)
        call.rows(connection)

    def end(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.leave(self._asked.message_id, self._wake)


@dataclass(frozen=True, slots=True)
class UnkeptValue:
    """A returned value that cannot be kept, for instance because a child process could not send it."""

    problem: str


def encoded_result(codec: Codec, schema: PayloadSchema | None, value: object) -> EncodedResult:
    """Encode a handler's result, or the reason why that fails. Raise nothing, since the handler has done its work."""
    if value is None:
        return EncodedResult()
    if isinstance(value, UnkeptValue):
        return _unkept(value.problem)
    try:
        return EncodedResult(_content(codec, schema, value))
    except Exception as error:  # noqa: BLE001 - a codec and a model's own code may raise anything
        problem = str(error) if isinstance(error, PayloadError) else f"{type(error).__name__}: {said(error)}"
        return _unkept(problem.replace("payload at", "the value at", 1))


def results_of_batch(result: object, count: int) -> list[Any]:
    if result is None or isinstance(result, UnkeptValue):
        return [result] * count
    if isinstance(result, list) and len(result) == count:
        return result
    found = f"a list of {len(result)}" if isinstance(result, list) else f"a {type(result).__name__}"
    return [UnkeptValue(f"it is {found} for a batch of {count}; return a list with a result for each, or None")] * count


def given_result(codec: Codec, value: object) -> EncodedResult:
    """Encode a result that the application passes to a verb, or raise PayloadError."""
    return EncodedResult(None if value is None else _content(codec, None, value))


def _content(codec: Codec, schema: PayloadSchema | None, value: object) -> bytes:
    if schema is not None:
        value = schema.result.plain(value)
    content: object = codec.encode(value)
    if not isinstance(content, bytes):
        raise PayloadError(f"{type(codec).__name__} made a {type(content).__name__} of it; let encode() return bytes")
    if len(content) > RESULT_BYTES:
        raise PayloadError(
            f"it has {len(content):,} bytes, and a result {RESULT_BYTES:,} at most; keep it elsewhere and return where"
        )
    return content


def _unkept(problem: str) -> EncodedResult:
    # In ASCII, which every database encoding can represent.
    return EncodedResult(problem=clean(problem[:_PROBLEM]).encode("ascii", "backslashreplace").decode())
