"""Outcomes of handlers in a worker with threads."""

import logging
import threading
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Bury, Context, Delivery, MessageCancelled, Queue, RetryPolicy
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import (
    count_effects,
    held_of,
    is_empty,
    send,
    until,
    write_effect,
)

pytestmark = pytest.mark.usefixtures("effects")

_AT_ONCE = RetryPolicy(first=timedelta())
_LATER = timedelta(hours=1)


class _Speechless(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")


class _Unspeakable(BaseException):
    def __str__(self) -> str:
        raise SystemExit("no words")


class _Undecided(RetryPolicy):
    def delay(self, *_: object) -> timedelta:
        raise ValueError("no delay")


def test_what_fails(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Whatever a handler or its policy raises costs its message an attempt, and the only thread goes on.

    A message that always fails becomes a dead letter with its error and traceback; the lower limit counts.
    """
    tried: list[str] = []

    def handle(delivery: Delivery) -> None:
        tried.append(delivery.kind)
        raise raised.get(delivery.kind, ValueError)("odd")

    raised: dict[str, type[BaseException]] = {
        "speechless": _Speechless, "unspeakable": _Unspeakable, "undecided": LookupError,
    }  # fmt: skip
    queue.handler("own")(handle)
    queue.handler("kind", retry=RetryPolicy(first=timedelta(), max_attempts=2))(handle)
    for kind in ("speechless", "unspeakable"):
        queue.handler(kind, retry=RetryPolicy(first=_LATER, cap=_LATER))(handle)
    queue.handler("undecided", retry=_Undecided())(handle)
    send(engine, queue, 1, kind="own", max_attempts=3)
    for kind in ("kind", *raised):
        send(engine, queue, 1, kind=kind)
    worker = start(queue, concurrency=1, retry=_AT_ONCE)
    until(lambda: worker.stats.buried == 2 and worker.stats.retried >= 6, "each has failed")
    worker.stop()
    assert sorted(tried)[:5] == ["kind"] * 2 + ["own"] * 3
    assert raised.keys() <= set(tried)
    errors = {row.kind: row.error for row in database.rows("select kind, error from fq_message where attempts > 0")}
    assert "_Speechless" in errors["speechless"]
    assert errors["unspeakable"]
    assert "no delay" in errors["undecided"]
    letters = database.rows("select reason, error, attempts from fq_dead_letter order by attempts")
    assert [(letter.attempts, letter.reason) for letter in letters] == [
        (2, "attempts exhausted: the policy's limit is 2"),
        (3, "attempts exhausted"),
    ]
    for letter in letters:
        assert "ValueError: odd" in letter.error
        assert "in handle" in letter.error


def test_the_cancel_of_another_message(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A handler that waits for another message, which is cancelled, has failed; its own message is not complete."""

    @queue.handler
    def handle(delivery: Delivery) -> None:
        raise MessageCancelled(delivery.message_id + 1)

    send(engine, queue, 1)
    worker = start(queue, concurrency=1, retry=RetryPolicy(first=_LATER, cap=_LATER))
    until(lambda: worker.stats.retried or worker.stats.completed, "it is settled")
    assert str(database.value("select error from fq_message")).count("MessageCancelled")


def test_what_cannot_be_read(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A payload that is not the codec's, or headers that no Python can read, are buried, and their neighbours done."""
    seen = []
    queue.handler()(lambda delivery: seen.append(delivery.payload))
    payload, headers, _ = send(engine, queue, 1, 2, 3)
    database.execute("update fq_message set content = '\\x7b' where id = :id", id=payload)
    database.execute("update fq_message set headers = '{\"a\": 1e5000}' where id = :id", id=headers)
    start(queue)
    until(lambda: is_empty(database), "all have ended")
    assert seen == [3]
    reasons = {letter.message_id: letter.reason or "" for letter in queue.dead_letters.list(engine)}
    assert "cannot be decoded" in reasons[payload]
    assert "the headers beside it" in reasons[headers]


class _Slow:
    """A codec that takes its time for one content: until the others are done."""

    def __init__(self) -> None:
        self.others_done = threading.Event()

    def encode(self, payload: Any) -> bytes:
        return bytes(payload)

    def decode(self, content: bytes) -> bytes:
        if content == b"slow":
            until(self.others_done.is_set, "the others are done")
        return content


def test_a_payload_that_takes_long_to_decode(engine: Engine, database: Database, start: StartWorker) -> None:
    """It takes the time of its own handler, and none of those who were taken with it."""
    codec = _Slow()
    slowly = Queue("slowly", codec=codec)
    seen: list[bytes] = []

    @slowly.handler()
    def handle(delivery: Delivery) -> None:
        seen.append(delivery.payload)
        if len(seen) == 10:
            codec.others_done.set()

    with Session(engine) as session, session.begin():
        for payload in (b"slow", *(bytes([number]) for number in range(10))):
            slowly.enqueue(session, channel="a", payload=payload)
    start(slowly, concurrency=2)
    until(lambda: is_empty(database), "all are done")
    assert seen[-1] == b"slow"
    assert sorted(seen[:-1]) == [bytes([number]) for number in range(10)]


def test_effects_and_completion_are_one(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """What a handler writes on its session is there once, however often it is tried."""

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        if delivery.attempt < 3:
            raise ValueError("after the write")

    send(engine, queue, *range(10))
    worker = start(queue, retry=_AT_ONCE)
    until(lambda: is_empty(database), "all succeed")
    assert count_effects(database) == 10
    until(lambda: worker.stats.completed == 10, "they are counted")
    assert worker.stats.retried == 20


def test_raised_is_rolled_back_and_returned_is_kept(
    queue: Queue, engine: Engine, database: Database, start: StartWorker
) -> None:
    """An outcome that is returned commits with the writes; one that is raised rolls them back."""

    @queue.handler("raise")
    def raising(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        raise Bury("raised")

    @queue.handler("return")
    def returning(delivery: Delivery, session: Session) -> Bury:
        write_effect(session, delivery)
        return Bury("returned")

    send(engine, queue, 1, kind="raise")
    [kept] = send(engine, queue, 1, kind="return")
    start(queue)
    until(lambda: is_empty(database), "both are buried")
    assert [row.message_id for row in database.rows("select message_id from effect")] == [kept]
    assert database.value("select count(*) from fq_dead_letter where reason in ('raised', 'returned')") == 2


def test_a_serialization_failure_under_a_lost_lease(queue: Queue, engine: Engine, start: StartWorker) -> None:
    """A transaction whose message may be somebody else's by now is not tried again."""
    called: list[int] = []

    @queue.handler(retry=RetryPolicy(first=_LATER, jitter=0, cap=_LATER))
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        called.append(delivery.deliveries)
        held_of(context).lease.lose()
        session.execute(text("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$"))

    send(engine, queue, 1)
    worker = start(queue, lease=timedelta(hours=1))
    until(lambda: worker.stats.retried or worker.stats.lost, "it has ended")
    assert called == [1]


def test_several_queues(engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker serves its queues in turn: the backlog of one does not keep the other waiting."""
    queues = [Queue("one"), Queue("two")]
    order: list[str] = []
    for queue in queues:
        queue.handler()(lambda delivery: order.append(delivery.queue))
        send(engine, queue, *range(40))
    start(*queues, concurrency=1, prefetch=0)
    until(lambda: is_empty(database), "all are done")
    halves = order[:40]
    assert 15 <= halves.count("one") <= 25


def test_names_make_no_line_of_the_log(
    queue: Queue, engine: Engine, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """What a terminal obeys, and an end of line, is written as an escape; the record's fields have it as it is."""
    channel = "customer-7\n2026-01-01 INFO audit: payment approved\x1b[2J"

    @queue.handler("odd\rkind")
    def handle(_: Delivery) -> None:
        raise ValueError("no\x1b[31m")

    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        start(queue, name="me\nyou")
        send(engine, queue, 1, channel=channel, kind="odd\rkind")
        until(lambda: caplog.records, "the failure is logged")
    [record] = caplog.records[:1]
    assert record.message.isprintable()
    assert r"customer-7\n2026-01-01 INFO audit: payment approved\x1b[2J, kind odd\rkind" in record.message
    assert vars(record)["channel"] == channel


def test_exceptions_of_the_policy(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
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
    worker = start(queue, retry=RetryPolicy(retry_on=(OSError,), first=_LATER, cap=_LATER))
    until(lambda: worker.stats.buried == 2, "both are dead letters")
    letters = {letter.kind: (letter.attempts, letter.reason) for letter in queue.dead_letters.list(engine)}
    assert letters == dict.fromkeys(kinds, (1, "not retried: KeyError"))
    assert count_effects(database) == 0


_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def test_context_variables(queue: Queue, engine: Engine, start: StartWorker) -> None:
    """Of two messages that one thread handles, the second does not see what the handler of the first has set."""
    seen = []

    @queue.handler
    def handle(delivery: Delivery) -> None:
        seen.append((threading.get_ident(), _tenant.get()))
        _tenant.set(delivery.channel)

    send(engine, queue, 1, 2)
    worker = start(queue, concurrency=1)
    until(lambda: worker.stats.completed == 2, "both are done")
    assert len({thread for thread, _ in seen}) == 1
    assert [tenant for _, tenant in seen] == ["nobody"] * 2
