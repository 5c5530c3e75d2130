"""Outcomes of handlers in a worker with threads."""

import threading
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Bury, BytesCodec, Context, Delivery, MessageCancelled, Queue, RetryPolicy
from tests.fixtures.database import Database
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
    queue.handler("kind", retry=replace(AT_ONCE, max_attempts=2))(handle)
    for kind in ("speechless", "unspeakable"):
        queue.handler(kind, retry=LATER)(handle)
    queue.handler("undecided", retry=_Undecided())(handle)
    send(engine, queue, 1, kind="own", max_attempts=3)
    for kind in ("kind", *raised):
        send(engine, queue, 1, kind=kind)
    worker = start(queue, concurrency=1, retry=AT_ONCE)
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
