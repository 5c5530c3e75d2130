"""Outcomes of handlers, also of classes of the application's own, which mean what their base classes mean."""

import asyncio
import copy
import pickle
import threading
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    AsyncWorker,
    Bury,
    BytesCodec,
    Context,
    Delivery,
    MessageCancelled,
    Queue,
    Release,
    Retry,
    RetryPolicy,
)
from sqlalchemy_fairqueue.testing import aperform
from sqlalchemy_fairqueue.values.outcomes import Outcome
from tests.fixtures.database import Database
from tests.worker import isolated
from tests.worker.conftest import StartWorker
from tests.worker.helpers import (
    AT_ONCE,
    LATER,
    count_effects,
    drained,
    held_of,
    is_empty,
    send,
    until,
    write_effect,
)

pytestmark = pytest.mark.usefixtures("effects")


class _Speechless(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")


class _Unspeakable(BaseException):
    def __str__(self) -> str:
        raise SystemExit("no words")


class _Undecided(RetryPolicy):
    def delay(self, *_: object) -> timedelta:
        raise ValueError("no delay")


class _Nonsense(RetryPolicy):
    def delay(self, *_: object) -> Any:
        return "soon"


def test_what_fails(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Whatever a handler or its policy raises costs its message an attempt, and the only thread goes on.

    A message that always fails becomes a dead letter with its error and traceback; the lower limit counts.
    """
    tried: list[str] = []
    raised = {"speechless": _Speechless, "unspeakable": _Unspeakable, "undecided": LookupError, "nonsense": LookupError}
    policies = {
        "kind": replace(AT_ONCE, max_attempts=2),
        "undecided": _Undecided(),
        "nonsense": _Nonsense(),
        "own": None,
    }

    def handle(delivery: Delivery) -> None:
        tried.append(delivery.kind)
        raise raised.get(delivery.kind, ValueError)("odd")

    for kind in ("own", "kind", *raised):
        queue.handler(kind, retry=policies.get(kind, LATER))(handle)
        send(engine, queue, 1, kind=kind, max_attempts=3 if kind == "own" else 20)
    worker = start(queue, concurrency=1, retry=AT_ONCE)
    until(lambda: worker.stats.buried == 2 and worker.stats.retried >= 7, "each has failed")
    worker.stop()
    assert sorted(tried)[:2] == ["kind"] * 2
    assert tried.count("own") == 3
    assert raised.keys() <= set(tried)
    errors = {row.kind: row.error for row in database.rows("select kind, error from fq_message where attempts > 0")}
    assert errors.pop("unspeakable")
    for kind, words in {"speechless": "_Speechless", "undecided": "no delay", "nonsense": "soon"}.items():
        assert words in errors[kind]
    letters = database.rows("select reason, error, attempts from fq_dead_letter order by attempts")
    assert [(letter.attempts, letter.reason) for letter in letters] == [
        (2, "attempts exhausted: the policy's limit is 2"),
        (3, "attempts exhausted"),
    ]
    for letter in letters:
        assert "ValueError: odd" in letter.error
        assert "in handle" in letter.error


def test_the_cancel_of_another_message(queue: Queue, engine: Engine, database: Database) -> None:
    """A handler that waits for another message, which is cancelled, has failed; its own message is not complete."""

    @queue.handler
    def handle(delivery: Delivery) -> None:
        raise MessageCancelled(delivery.message_id + 1)

    send(engine, queue, 1)
    drained(engine, queue, retry=LATER)
    assert "MessageCancelled" in database.value("select error from fq_message")


def test_what_cannot_be_read(queue: Queue, engine: Engine, database: Database, seen: list[object]) -> None:
    """A payload that is not the codec's, or headers that no Python can read, are buried, and their neighbours done."""
    payload, headers, _ = send(engine, queue, 1, 2, 3)
    database.execute("update fq_message set content = '\\x7b' where id = :id", id=payload)
    database.execute("update fq_message set headers = '{\"a\": 1e5000}' where id = :id", id=headers)
    drained(engine, queue)
    assert seen == [3]
    reasons = {letter.message_id: letter.reason or "" for letter in queue.dead_letters.list(engine)}
    assert "cannot be decoded" in reasons[payload]
    assert "the headers beside it" in reasons[headers]


def test_a_payload_that_takes_long_to_decode(engine: Engine, start: StartWorker) -> None:
    """It takes the time of its own handler, and none of those who were taken with it."""
    seen: list[bytes] = []

    class Slow(BytesCodec):
        def decode(self, content: bytes) -> bytes:
            if content == b"slow":
                until(lambda: len(seen) == 10, "the others are done")
            return content

    slowly = Queue("slowly", codec=Slow())
    slowly.handler()(lambda delivery: seen.append(delivery.payload))
    payloads = [b"slow", *(bytes([number]) for number in range(10))]
    send(engine, slowly, *payloads)
    start(slowly, concurrency=2)
    until(lambda: len(seen) == 11, "all are done")
    assert seen[-1] == b"slow"
    assert sorted(seen) == sorted(payloads)


def test_effects_and_completion_are_one(queue: Queue, engine: Engine, database: Database) -> None:
    """What a handler writes on its session is there once, however often it is tried."""

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        if delivery.attempt < 3:
            raise ValueError("after the write")

    send(engine, queue, *range(10))
    worker = drained(engine, queue, retry=AT_ONCE)
    assert (is_empty(database), count_effects(database)) == (True, 10)
    assert (worker.stats.completed, worker.stats.retried) == (10, 20)


def test_raised_is_rolled_back_and_returned_is_kept(queue: Queue, engine: Engine, database: Database) -> None:
    """An outcome that is returned commits with the writes; one that is raised rolls them back."""

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> Bury:
        write_effect(session, delivery)
        outcome = Bury(delivery.payload)
        if delivery.payload == "raised":
            raise outcome
        return outcome

    _, kept = send(engine, queue, "raised", "returned")
    drained(engine, queue)
    assert database.rows("select message_id from effect") == [(kept,)]
    assert sorted(letter.reason or "" for letter in queue.dead_letters.list(engine)) == ["raised", "returned"]


def test_a_serialization_failure_under_a_lost_lease(queue: Queue, engine: Engine, start: StartWorker) -> None:
    """A transaction whose message may be somebody else's by now is not tried again."""
    called: list[int] = []

    @queue.handler(retry=LATER)
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        called.append(delivery.deliveries)
        held_of(context).lease.lose()
        session.execute(text("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$"))

    send(engine, queue, 1)
    worker = start(queue, lease=timedelta(hours=1))
    until(lambda: worker.stats.retried or worker.stats.lost, "it has ended")
    assert called == [1]


def test_several_queues(engine: Engine) -> None:
    """A worker serves its queues in turn: the backlog of one does not keep the other waiting."""
    queues = [Queue("one"), Queue("two")]
    order: list[str] = []
    for queue in queues:
        queue.handler()(lambda delivery: order.append(delivery.queue))
        send(engine, queue, *range(40))
    drained(engine, *queues, concurrency=1, prefetch=0)
    assert len(order) == 80
    assert 15 <= order[:40].count("one") <= 25


def test_names_make_no_line_of_the_log(queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """What a terminal obeys, and an end of line, is written as an escape; the record's fields have it as it is."""
    channel = "customer-7\n2026-01-01 INFO audit: payment approved\x1b[2J"

    @queue.handler("odd\rkind")
    def handle(_: Delivery) -> None:
        raise ValueError("no\x1b[31m")

    send(engine, queue, 1, channel=channel, kind="odd\rkind")
    drained(engine, queue, name="me\nyou", retry=LATER)
    [record] = caplog.records[:1]
    assert record.message.isprintable()
    assert r"customer-7\n2026-01-01 INFO audit: payment approved\x1b[2J, kind odd\rkind" in record.message
    assert vars(record)["channel"] == channel


def test_exceptions_of_the_policy(queue: Queue, engine: Engine, database: Database) -> None:
    """An exception that a policy buries makes a dead letter at its first attempt, and the session is rolled back.

    The handler's own policy stands before the worker's, which is for the others.
    """
    kinds = {"own": RetryPolicy(bury_on=(LookupError,)), "other": None}
    for kind, policy in kinds.items():

        @queue.handler(kind, retry=policy)
        def handle(delivery: Delivery, session: Session) -> None:
            write_effect(session, delivery)
            raise KeyError(delivery.kind)

        send(engine, queue, 1, kind=kind)
    drained(engine, queue, retry=replace(LATER, retry_on=(OSError,)))
    letters = {letter.kind: (letter.attempts, letter.reason) for letter in queue.dead_letters.list(engine)}
    assert letters == dict.fromkeys(kinds, (1, "not retried: KeyError"))
    assert count_effects(database) == 0


_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def test_context_variables(queue: Queue, engine: Engine) -> None:
    """Of two messages that one thread handles, the second does not see what the handler of the first has set."""
    seen = []

    @queue.handler
    def handle(delivery: Delivery) -> None:
        seen.append((threading.get_ident(), _tenant.get()))
        _tenant.set(delivery.channel)

    send(engine, queue, 1, 2)
    drained(engine, queue, concurrency=1)
    assert len({thread for thread, _ in seen}) == 1
    assert [tenant for _, tenant in seen] == ["nobody"] * 2


_TWICE = RetryPolicy(first=timedelta(), max_attempts=2)


class Declared(Retry):
    """Says it for all of its outcomes."""

    delay = timedelta(hours=1)
    error = "slow down"


class Unprepared(Retry):
    """Does not call __init__."""

    def __init__(self, hours: int) -> None:
        self.delay = timedelta(hours=hours)
        self.error = "slow down"


class Closed(Release):
    """Has arguments of its own."""

    def __init__(self, hours: int) -> None:
        super().__init__(delay=timedelta(hours=hours))


class NoSuchCustomer(Bury):
    """Has attributes of its own."""

    def __init__(self, customer: int, /) -> None:
        super().__init__(f"no customer {customer}")
        self.customer = customer


_OUTCOMES: list[Outcome] = [isolated.RateLimited(3600), Declared(), Unprepared(1), Closed(1), NoSuchCustomer(7)]
_BASES: list[Outcome] = [
    Retry(delay=timedelta(hours=1), error="slow down"),
    Release(delay=timedelta(hours=1)),
    Bury("no customer 7"),
]
_RETRIED, _RELEASED, _BURIED = ("slow down", 1, True), (None, 0, True), "no customer 7"
_ENDS = [_RETRIED, _RETRIED, _RETRIED, _RELEASED, _BURIED, _RETRIED, _RELEASED, _BURIED]


def _end(database: Database, message_id: int) -> object:
    """How a message was settled."""
    error = "select error, attempts, dequeue_at - fq_now() > 3.5e9 as late from fq_message where id = :id"
    if rows := database.rows(error, id=message_id):
        return tuple(rows[0])
    return database.value("select reason from fq_dead_letter where message_id = :id", id=message_id)


async def test_in_threads_and_tasks(engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """Raised and returned they settle the message as a worker does for their base, and a test sees them as they are."""
    outcomes = [*_OUTCOMES, *_BASES]

    def finish(delivery: Delivery) -> Outcome:
        outcome: Outcome = outcomes[delivery.payload["number"]]
        if delivery.payload["raises"]:
            raise outcome
        return outcome

    def in_session(delivery: Delivery, session: Session) -> Any:  # noqa: ARG001 - named as it is asked for
        return finish(delivery)

    async def asynchronous(delivery: Delivery) -> Any:
        return finish(delivery)

    async def async_in_session(delivery: Delivery, session: AsyncSession) -> Any:  # noqa: ARG001 - see above
        return finish(delivery)

    payloads = [{"number": number, "raises": raises} for number in range(len(outcomes)) for raises in (False, True)]
    handlers: list[Any] = [finish, in_session, asynchronous, async_in_session]
    for handler in handlers:
        queue = Queue(handler.__name__)
        queue.handler(handler)
        sent = send(engine, queue, *payloads)
        if asyncio.iscoroutinefunction(handler):
            await AsyncWorker(async_engine, queue, housekeeping=False, retry=_TWICE).run(drain=True)
        else:
            await asyncio.to_thread(drained, engine, queue, retry=_TWICE)
        async with AsyncSession(async_engine) as session:
            for message_id, payload in zip(sent, payloads, strict=True):
                assert _end(database, message_id) == _ENDS[payload["number"]], payload
                assert await aperform(queue, payload, session=session) is outcomes[payload["number"]]


def _pickled(outcome: Outcome) -> Any:
    return pickle.loads(pickle.dumps(outcome))  # noqa: S301 - our own


def test_they_can_be_copied() -> None:
    """Copied and pickled they are equal, with all that they have, whatever their arguments are."""
    for outcome in _OUTCOMES:
        for made in (copy.copy(outcome), copy.deepcopy(outcome), _pickled(outcome)):
            assert (made, str(made), vars(made)) == (outcome, str(outcome), vars(outcome))


async def test_an_outcome_that_says_nothing(queue: Queue, engine: Engine) -> None:
    """An Outcome that is neither of the three is an exception like any other, in tests too."""

    class Unknown(Outcome):
        pass

    @queue.handler
    def handle(delivery: Delivery) -> Outcome:
        if delivery.payload == "raised":
            raise Unknown
        return Unknown()

    send(engine, queue, "raised", "returned")
    await asyncio.to_thread(drained, engine, queue, retry=_TWICE)
    exhausted = "attempts exhausted: the policy's limit is 2"
    assert [letter.reason for letter in queue.dead_letters.list(engine)] == [exhausted] * 2
    for payload in ("raised", "returned"):
        with pytest.raises(Unknown):
            await aperform(queue, payload)
