"""Outcomes of handlers in a worker with threads."""

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Bury, Context, Delivery, HandlerTimeout, Queue, Release, Retry, RetryPolicy
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import (
    LONG_LEASE,
    MANY_HEARTBEATS,
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


def test_return_completes(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A message whose handler returned is gone."""
    seen = []
    queue.handler("parse")(lambda delivery: seen.append(delivery.payload))
    send(engine, queue, *range(50), kind="parse")
    worker = start(queue)
    until(lambda: is_empty(database), "all are completed")
    assert sorted(seen) == list(range(50))
    until(lambda: worker.stats.completed == 50, "they are counted")


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_retry_later(queue: Queue, engine: Engine, database: Database, start: StartWorker, how: str) -> None:
    """Retry puts a message back for later, its attempt counted and its error kept."""

    @queue.handler()
    def handle(_: Delivery) -> Retry:
        outcome = Retry(delay=_LATER, error="not yet")
        if how == "raised":
            raise outcome
        return outcome

    send(engine, queue, 1)
    start(queue)
    until(lambda: database.value("select error from fq_message where lease_id is null") == "not yet", "it is back")
    assert database.value("select attempts from fq_message") == 1
    assert database.value("select dequeue_at - fq_now() from fq_message") > 3_500_000_000


def test_release_is_not_counted(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Release puts a message back, its attempt not counted."""
    queue.handler()(lambda _: Release(delay=_LATER))
    send(engine, queue, 1)
    worker = start(queue)
    until(lambda: worker.stats.released == 1, "it is given back")
    assert database.value("select attempts from fq_message where lease_id is null") == 0


def test_bury(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Bury puts a message to the dead letters, with its reason."""
    queue.handler()(lambda _: Bury("no such customer"))
    send(engine, queue, 1)
    start(queue)
    until(lambda: is_empty(database), "it is buried")
    assert database.value("select reason from fq_dead_letter") == "no such customer"


def test_an_exception_is_tried_again(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A handler that raises gets the message again, until it succeeds."""
    attempts = []

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt < 3:
            raise ValueError("odd")

    send(engine, queue, 1)
    start(queue, retry=_AT_ONCE)
    until(lambda: is_empty(database), "it succeeds")
    assert attempts == [1, 2, 3]


class _Speechless(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")


class _Undecided(RetryPolicy):
    def delay(self, *_: object) -> timedelta:
        raise ValueError("no delay")


def test_an_exception_without_words(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """An exception whose words cannot be had fails its message like any other, and the only thread goes on."""

    @queue.handler(retry=RetryPolicy(first=_LATER, cap=_LATER))
    def handle(delivery: Delivery) -> None:
        if delivery.payload == "odd":
            raise _Speechless

    send(engine, queue, "odd", "even")
    start(queue, concurrency=1)
    until(lambda: database.value("select count(*) from fq_message") == 1, "the other one is done")
    until(
        lambda: "_Speechless" in (database.value("select error from fq_message where lease_id is null") or ""),
        "it is back",
    )


def test_a_policy_that_fails(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A retry policy of the application's that raises costs its message an attempt, and the only thread goes on."""

    @queue.handler(retry=_Undecided())
    def handle(delivery: Delivery) -> None:
        if delivery.payload == "odd":
            raise LookupError

    send(engine, queue, "odd", "even")
    start(queue, concurrency=1)
    until(lambda: database.value("select count(*) from fq_message") == 1, "the other one is done")
    until(
        lambda: "no delay" in (database.value("select error from fq_message where lease_id is null") or ""),
        "it is back",
    )


def test_out_of_attempts(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A message that always fails becomes a dead letter with its error and traceback; the lower limit counts."""
    tried = []

    def handle(delivery: Delivery) -> None:
        tried.append(delivery.kind)
        raise ValueError("odd")

    queue.handler("own")(handle)
    queue.handler("kind", retry=RetryPolicy(first=timedelta(), max_attempts=2))(handle)
    send(engine, queue, 1, kind="own", max_attempts=3)
    send(engine, queue, 1, kind="kind")
    start(queue, retry=_AT_ONCE)
    until(lambda: is_empty(database), "they are dead letters")
    assert sorted(tried) == ["kind"] * 2 + ["own"] * 3
    letters = database.rows("select reason, error, attempts from fq_dead_letter order by attempts")
    assert [(letter.attempts, letter.reason) for letter in letters] == [
        (2, "attempts exhausted: the policy's limit is 2"),
        (3, "attempts exhausted"),
    ]
    for letter in letters:
        assert "ValueError: odd" in letter.error
        assert "in handle" in letter.error


def test_an_undecodable_payload(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """What is not the codec's is buried with the reason, and its neighbours are done."""
    seen = []
    queue.handler()(lambda delivery: seen.append(delivery.payload))
    bad, _ = send(engine, queue, 1, 2)
    database.execute("update fq_message set content = '\\x7b' where id = :id", id=bad)
    start(queue)
    until(lambda: is_empty(database), "both have ended")
    assert seen == [2]
    assert "cannot be decoded" in database.value("select reason from fq_dead_letter")


def test_unreadable_headers(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Headers that no Python can read are a reason to bury their own message, and no other."""
    seen = []
    queue.handler()(lambda delivery: seen.append(delivery.payload))
    with Session(engine) as session, session.begin():
        bad, _ = (queue.enqueue(session, channel="a", payload=number) for number in (1, 2))
    database.execute("update fq_message set headers = '{\"a\": 1e5000}' where id = :id", id=bad.message_id)
    start(queue)
    until(lambda: is_empty(database), "both have ended")
    assert seen == [2]
    assert "the headers beside it" in database.value("select reason from fq_dead_letter")


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


def test_serialization_failures(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A transaction that could not be serialized is tried again at once, in the same attempt."""
    tries = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        tries.append(delivery.attempt)
        write_effect(session, delivery)
        if len(tries) < 3:
            session.execute(text("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$"))

    send(engine, queue, 1)
    start(queue, retry=RetryPolicy(first=_LATER, jitter=0, cap=_LATER))
    until(lambda: is_empty(database), "it succeeds")
    assert tries == [1, 1, 1]
    assert count_effects(database) == 1


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


def test_a_timeout_in_a_thread(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A handler that took too long has failed, whatever it returns, and its writes are gone."""
    errors = []

    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        write_effect(session, delivery)
        until(lambda: context.timed_out, "its time is over")
        try:
            context.check()
        except HandlerTimeout as error:
            errors.append(error.message_id)

    queue.handler(timeout=timedelta(milliseconds=20))(handle)
    [message_id] = send(engine, queue, 1)
    start(queue, retry=RetryPolicy(first=_LATER, jitter=0, cap=_LATER))
    until(lambda: database.value("select error from fq_message") is not None, "it has failed")
    assert "took longer than kind 'default' may" in database.value("select error from fq_message")
    assert errors == [message_id]
    assert count_effects(database) == 0


def test_a_cancelled_message(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A message that is cancelled while its handler works is gone, and its handler is told."""
    started, told = threading.Event(), []

    @queue.handler()
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        write_effect(session, delivery)
        started.set()
        until(lambda: context.cancelled, "it is told")
        told.append(delivery.message_id)

    [message_id] = send(engine, queue, 1)
    start(queue, lease=LONG_LEASE, timings=MANY_HEARTBEATS)
    until(started.is_set, "the handler works")
    queue.cancel(engine, message_id)
    until(lambda: is_empty(database), "the message is gone")
    assert told == [message_id]
    assert count_effects(database) == 0


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


def test_a_coroutine_that_nobody_awaits(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A plain function that returns a coroutine has not done its work, and the message says so."""

    async def work() -> None: ...

    queue.handler()(lambda _: work())
    send(engine, queue, 1)
    start(queue, retry=RetryPolicy(first=_LATER, jitter=0, cap=_LATER))
    until(lambda: database.value("select error from fq_message") is not None, "it has failed")
    assert "returned an awaitable" in database.value("select error from fq_message")


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
    letters = {letter.kind: (letter.attempts, letter.reason) for letter in queue.dead_letters(engine)}
    assert letters == dict.fromkeys(kinds, (1, "not retried: KeyError"))
    assert count_effects(database) == 0
