"""Answers and errors of queue.result, by the end of the message."""

from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, Enqueue, InvalidArgument, JsonCodec, LeaseLost, PayloadError, Queue, errors
from sqlalchemy_fairqueue.errors import MessageFailed, ResultCancelled, ResultNotKept, ResultNotReady, UnknownMessage
from tests.fixtures.database import Database
from tests.results.conftest import HOUR, Out


def test_a_value_comes_back_as_payloads_do(engine: Engine, queue: Queue, out: Out) -> None:
    """What a completion says is read again, on an engine, a connection and a session, and just the bytes that fit."""
    for value in (None, 7, "", [1, {"a": None}], {"pages": [1.5, True]}, "x" * (2**20 - 2)):
        delivery = out()
        queue.complete(engine, delivery, result=value)
        with engine.connect() as connection, Session(engine) as session:
            assert [queue.result(where, delivery.message_id) for where in (engine, connection, session)] == [value] * 3


def test_a_message_of_another_channel_or_queue_is_unknown(engine: Engine, queue: Queue, database: Database) -> None:
    """Whatever became of a message of another channel or queue is not told; nor what nobody knows any more."""
    receipts = queue.enqueue_many(engine, [Enqueue(channel="a", payload=number) for number in range(5)])
    of_a = [one.message_id for one in receipts if one.message_id is not None]
    done, dead, gone = queue.dequeue(engine, limit=3)
    queue.complete(engine, done, result="secret")
    queue.bury(engine, dead)
    queue.complete(engine, gone)
    database.execute("delete from fq_result where message_id = :id", id=gone.message_id)
    queue.cancel(engine, of_a[3])
    assert queue.result(engine, done.message_id, channel="a") == "secret"
    for message_id in of_a:
        with pytest.raises(UnknownMessage):
            queue.result(engine, message_id, channel="b", timeout=HOUR)
    for message_id in (done.message_id, of_a[4]):
        with pytest.raises(UnknownMessage, match="queue 'other' knows no such message"):
            Queue("other").result(engine, message_id)
    with pytest.raises(MessageFailed):
        queue.result(engine, dead.message_id, channel="a")
    with pytest.raises(ResultNotReady):
        queue.result(engine, of_a[4], channel="a")
    with pytest.raises(UnknownMessage):
        queue.result(engine, gone.message_id, channel="a")
    with pytest.raises(InvalidArgument, match="channel"):
        queue.result(engine, done.message_id, channel="")


async def test_the_channel_of_a_job(async_engine: AsyncEngine, engine: Engine, queue: Queue) -> None:
    """A job refuses the messages of another channel as well, and so do both where they are awaited; it waits, too."""

    @queue.job
    def double(number: int) -> int:
        return 2 * number

    message_id = double.enqueue(engine, "a", number=4).message_id or 0
    with pytest.raises(ResultNotReady, match=r"within 0:00:00\.001"):
        double.result(engine, message_id, timeout=timedelta(milliseconds=1))
    queue.complete(engine, queue.dequeue(engine), result=8)
    asked: Any
    for asked in (double, queue):
        assert asked.result(engine, message_id, channel="a") == 8
        assert await asked.result(async_engine, message_id, channel="a") == 8
        with pytest.raises(UnknownMessage):
            asked.result(engine, message_id, channel="b")
        with pytest.raises(UnknownMessage):
            await asked.result(async_engine, message_id, channel="b")


def test_a_batch_keeps_what_each_has(engine: Engine, queue: Queue, database: Database) -> None:
    """Completions of one session with and without a value, of two queues, one of which keeps nothing."""
    other = Queue("other")
    for each in range(3):
        queue.enqueue(engine, channel="a", payload=each)
    other.enqueue(engine, channel="a", payload=0)
    first, second, third = queue.dequeue(engine, limit=3)
    [fourth] = other.dequeue(engine)
    assert not fourth.keeps_result
    with Session(engine) as session, session.begin():
        queue.complete(session, [first, third], result="both")
        queue.complete(session, second)
        other.complete(session, fourth, result="lost")
    ids = first.message_id, second.message_id, third.message_id
    assert [queue.result(engine, one) for one in ids] == ["both", None, "both"]
    with pytest.raises(ResultNotKept, match=r"queue 'other' kept no results when it was delivered"):
        other.result(engine, fourth.message_id)
    assert database.value("select count(*) from fq_result") == 3


def test_a_lost_delivery_keeps_nothing(engine: Engine, queue: Queue, out: Out, database: Database) -> None:
    """Who is not the holder any more leaves no result, while the others of the call do."""
    lost, kept = out(), out()
    queue.release(engine, lost)
    with pytest.raises(LeaseLost):
        queue.complete(engine, [lost, kept], result="x")
    assert queue.result(engine, kept.message_id) == "x"
    with pytest.raises(ResultNotReady):
        queue.result(engine, lost.message_id)
    assert database.value("select count(*) from fq_result") == 1


def test_a_dead_letter_says_why(engine: Engine, queue: Queue, out: Out) -> None:
    """The reason and the error; after a redrive the message has not ended, and may have a result."""
    delivery = out()
    error = 'Traceback\n  File "a.py"\nValueError: page 7'
    queue.bury(engine, delivery, reason="no such page", error=error)
    with pytest.raises(MessageFailed, match=r"no such page \(ValueError: page 7\)") as raised:
        queue.result(engine, delivery.message_id)
    assert (raised.value.reason, raised.value.error) == ("no such page", error)
    queue.dead_letters.redrive(engine)
    with pytest.raises(ResultNotReady):
        queue.result(engine, delivery.message_id)
    queue.complete(engine, queue.dequeue(engine), result="in the end")
    assert queue.result(engine, delivery.message_id) == "in the end"


def test_cancelled(engine: Engine, queue: Queue, out: Out) -> None:
    """A message that was cancelled, alone or with its group, says so from the commit on, however its handler ends; a
    cancel of one that is done changes nothing.
    """
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        [receipt] = group.enqueue_many([Enqueue(channel="a", payload=1)])
    queue.groups.cancel(engine, group.id)
    with pytest.raises(ResultCancelled):
        queue.result(engine, receipt.message_id or 0)
    for is_leased, in_session in product((False, True), repeat=2):
        message_id = queue.enqueue(engine, channel="a", payload=1).message_id or 0
        deliveries = queue.dequeue(engine) if is_leased else []
        with Session(engine) as session, session.begin():
            queue.cancel(session if in_session else engine, message_id)
        for each in (deliveries, []):
            with pytest.raises(ResultCancelled, match=f"message {message_id} was cancelled"):
                queue.result(engine, message_id)
            queue.complete(engine, each, result="too late")
        queue.cancel(engine, message_id)
        with pytest.raises(ResultCancelled):
            queue.result(engine, message_id)
    delivery = out()
    queue.complete(engine, delivery, result=1)
    assert queue.cancel(engine, delivery.message_id).outcome == "missing"
    assert queue.result(engine, delivery.message_id) == 1


def test_retention(engine: Engine, queue: Queue, out: Out, database: Database) -> None:
    """The retention of the commit of the completion counts; None ends keeping; kept ones stay. After its time a result
    is told as expired, and as not kept once housekeeping has deleted it.
    """
    short, long, none = out(), out(), out()
    for delivery, retention in ((long, 2 * HOUR), (short, timedelta(microseconds=1)), (none, None)):
        queue.configure(engine, result_retention=retention)
        queue.complete(engine, delivery, result=1)
    assert database.value("select max(expires_at - finished_at) from fq_result") == 7_200_000_000
    assert not out().keeps_result
    with pytest.raises(ResultNotKept):
        queue.result(engine, none.message_id)
    for said, deleted in (("it was kept until .* UTC", 1), ("it expired and was deleted", 0)):
        with pytest.raises(ResultNotKept, match=said):
            queue.result(engine, short.message_id)
        assert database.value("select deleted from fq_prune_expired(10)") == deleted
    assert queue.result(engine, long.message_id) == 1


def test_a_value_that_a_call_gives_is_refused(engine: Engine, queue: Queue, out: Out) -> None:
    """The caller is there to be told, and the delivery is not settled."""
    delivery = out()
    for value, problem in (({1, 2}, "a set cannot be encoded as JSON"), ("x" * 2**20, "has 1,048,578 bytes")):
        with pytest.raises(PayloadError, match=problem):
            queue.complete(engine, delivery, result=value)
    queue.complete(engine, delivery)


def test_another_codec(engine: Engine) -> None:
    """The queue's codec encodes results, too."""
    queue = Queue("raw", codec=BytesCodec())
    queue.configure(engine, result_retention=HOUR)
    queue.enqueue(engine, channel="a", payload=b"1")
    [delivery] = queue.dequeue(engine)
    queue.complete(engine, delivery, result=b"\x00\xff")
    assert queue.result(engine, delivery.message_id) == b"\x00\xff"
    with pytest.raises(PayloadError):
        Queue("raw", codec=JsonCodec()).result(engine, delivery.message_id)


def test_bad_arguments(engine: Engine, queue: Queue) -> None:
    """They are refused before anything is asked or sent."""
    ask: Any = queue.result
    with engine.connect() as connection:
        for call, problem in (
            (partial(ask, engine, 0), "message_id is 0"),
            (partial(ask, engine, 1, timeout=3), "timeout is 3; give a timedelta"),
            (partial(ask, connection, 1, timeout=HOUR), "on a Connection, whose transaction"),
            (partial(ask, Session(engine), 1, timeout=HOUR), "on a Session, whose transaction"),
        ):
            with pytest.raises(InvalidArgument, match=problem):
                call()


def test_every_error_is_of_one_class() -> None:
    """Who only wants to know that there is no value catches ResultError; a wait in vain is a TimeoutError."""
    for one in (MessageFailed, ResultCancelled, ResultNotKept, ResultNotReady, UnknownMessage):
        assert issubclass(one, errors.ResultError)
    assert issubclass(errors.ResultError, errors.FairQueueError)
    assert issubclass(ResultNotReady, TimeoutError)
