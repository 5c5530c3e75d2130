"""Waits for results: by notification, with a poll for what nobody notifies of."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, MessageFailed, Queue, ResultCancelled, ResultNotKept, ResultNotReady
from sqlalchemy_fairqueue.errors import UnknownMessage
from sqlalchemy_fairqueue.queue import results
from sqlalchemy_fairqueue.watching import watching
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.results.conftest import Out
from tests.worker.helpers import LISTENERS, auntil, until

Start = Callable[[Callable[[], Any]], "Future[Any]"]
Wait = Callable[[Delivery], "Future[Any]"]

_NEVER = 1e9
_LONG = PATIENCE.total_seconds()
_WAITS = "select count(*) from fq_result_wait"


@pytest.fixture
def start() -> Iterator[Start]:
    """Runs functions in threads."""
    with ThreadPoolExecutor(8) as threads:
        yield threads.submit


@pytest.fixture
def wait(engine: Engine, queue: Queue, database: Database, start: Start) -> Wait:
    """Waits for the result of a delivery in a thread, and goes on when an end is told from now on."""

    def waiting(delivery: Delivery) -> "Future[Any]":
        found = start(lambda: queue.result(engine, delivery.message_id, timeout=PATIENCE))
        until(_is_waited_for(database, engine), "it waits")
        return found

    return waiting


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody poll: what is found, a notification told."""
    monkeypatch.setattr(results, "FIRST_POLLS", ())
    monkeypatch.setattr(results, "LONGEST_POLL", _NEVER)
    monkeypatch.setattr(results, "POLL_UNNOTIFIED", _NEVER)


def _is_waited_for(database: Database, engine: Engine) -> Callable[[], bool]:
    """Whether somebody is registered and listens, so that an end is told from now on."""

    def found() -> bool:
        watch: Any = watching.watch_of
        return bool(database.value(_WAITS)) and watch(engine).is_listening

    return found


_ENDS: dict[str, tuple[Callable[[Queue, Any, Any], object], type[Exception] | None]] = {
    "complete": (lambda queue, where, delivery: queue.complete(where, delivery, result="done"), None),
    "bury": (lambda queue, where, delivery: queue.bury(where, delivery, reason="no"), MessageFailed),
    "retry": (lambda queue, where, delivery: queue.retry(where, delivery, error="no"), MessageFailed),
    "cancel": (lambda queue, where, delivery: queue.cancel(where, delivery.message_id), ResultCancelled),
}


@pytest.mark.usefixtures("notified")
def test_each_end_notifies(engine: Engine, queue: Queue, out: Out, database: Database, wait: Wait) -> None:
    """One who waits learns at the commit that the message has ended, in whatever way, and holds no connection."""
    for (end, (verb, error)), in_session in product(_ENDS.items(), (False, True)):
        delivery = out(max_attempts=1)
        waiting = wait(delivery)
        with Session(engine) as session, session.begin():
            verb(queue, session if in_session else engine, delivery)
        if error is None:
            assert waiting.result(_LONG) == "done"
        else:
            assert isinstance(waiting.exception(_LONG), error), end
        assert database.value(_WAITS) == 0
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


@pytest.mark.usefixtures("notified")
async def test_an_awaited_end_notifies(async_engine: AsyncEngine, queue: Queue, database: Database) -> None:
    """The same in an event loop, for several that wait for one message, and for others beside."""
    ids = [(await queue.enqueue(async_engine, channel="a", payload=each)).message_id or 0 for each in range(2)]
    deliveries = await queue.dequeue(async_engine, limit=2)
    waiting = [
        asyncio.ensure_future(queue.result(async_engine, one, timeout=PATIENCE)) for one in (ids[0], ids[0], ids[1])
    ]
    await auntil(lambda: database.value(_WAITS) == 3, "all wait")
    await auntil(_is_waited_for(database, async_engine.sync_engine), "it listens")
    await queue.complete(async_engine, deliveries[0], result=[1])
    assert await asyncio.gather(*waiting[:2]) == [[1], [1]]
    assert not waiting[2].done()
    await queue.complete(async_engine, deliveries[1], result=[2])
    assert await waiting[2] == [2]
    assert database.value(_WAITS) == 0
    assert database.value(LISTENERS) == 1


def test_a_rollback_wakes_nobody(engine: Engine, queue: Queue, out: Out, wait: Wait) -> None:
    """What is not committed is not told, and the wait goes on."""
    delivery = out()
    waiting = wait(delivery)
    with Session(engine) as session:
        queue.complete(session, delivery, result=1)
        session.rollback()
    assert not waiting.done()
    queue.complete(engine, delivery, result=2)
    assert waiting.result(_LONG) == 2


def test_a_transaction_from_before_the_wait(engine: Engine, queue: Queue, out: Out, wait: Wait) -> None:
    """One that completed before the wait was registered, and commits after, notifies nobody: the poll finds it."""
    delivery = out()
    with engine.connect() as connection, connection.begin() as transaction:
        queue.complete(connection, delivery, result="late")
        waiting = wait(delivery)
        transaction.commit()
    assert waiting.result(_LONG) == "late"


def test_without_notifications(database: Database, start: Start, engine: Engine) -> None:
    """A queue that does not notify is polled: nothing is registered, and nobody listens."""
    queue = Queue("quiet", notify=False, check_kinds=False)
    queue.configure(engine, result_retention=timedelta(hours=1))
    message_id = queue.enqueue(engine, channel="a", payload=1).message_id or 0
    waiting = start(lambda: queue.result(engine, message_id, timeout=PATIENCE))
    queue.complete(engine, queue.dequeue(engine), result=1)
    assert waiting.result(_LONG) == 1
    assert database.value(_WAITS) == 0
    assert database.value(LISTENERS) == 0


def test_a_listener_that_is_cut(engine: Engine, queue: Queue, out: Out, database: Database, wait: Wait) -> None:
    """It comes back by itself, and those who wait look meanwhile."""
    delivery = out()
    waiting = wait(delivery)
    database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name like 'fairqueue listener %'"
    )
    queue.complete(engine, delivery, result=1)
    assert waiting.result(_LONG) == 1


def test_a_two_phase_transaction(engine: Engine, queue: Queue, out: Out, database: Database, start: Start) -> None:
    """Its PREPARE would refuse a notification: it sends none, and the poll finds what it did."""
    first, second = out(), out(max_attempts=1)
    waiting = [start(lambda one=one: queue.result(engine, one.message_id, timeout=PATIENCE)) for one in (first, second)]  # type: ignore[misc]
    until(lambda: database.value(_WAITS) == 2, "both wait")
    with Session(engine, twophase=True) as session, session.begin():
        queue.complete(session, first, result=1)
        queue.bury(session, second, reason="no")
    assert waiting[0].result(_LONG) == 1
    assert isinstance(waiting[1].exception(_LONG), MessageFailed)


def test_in_vain(engine: Engine, queue: Queue, out: Out, database: Database) -> None:
    """The time is over: the error says how long it was, and nothing is left behind."""
    delivery = out()
    with pytest.raises(ResultNotReady, match=r"has not ended within 0:00:00\.050000") as raised:
        queue.result(engine, delivery.message_id, timeout=timedelta(milliseconds=50))
    assert raised.value.timeout == timedelta(milliseconds=50)
    with pytest.raises(ResultNotReady):
        queue.result(engine, delivery.message_id, timeout=timedelta())
    assert database.value(_WAITS) == 0


async def test_a_wait_that_is_cancelled(async_engine: AsyncEngine, queue: Queue, database: Database) -> None:
    """Nothing is left behind by one who stops waiting."""
    message_id = (await queue.enqueue(async_engine, channel="a", payload=1)).message_id or 0
    waiting = asyncio.ensure_future(queue.result(async_engine, message_id, timeout=PATIENCE))
    await auntil(lambda: database.value(_WAITS) == 1, "it waits")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert database.value(_WAITS) == 0


def test_a_wait_for_what_never_comes(engine: Engine, queue: Queue, out: Out, database: Database) -> None:
    """What is over or never was is told at once, without a wait."""
    delivery = out()
    queue.configure(engine, result_retention=None)
    queue.complete(engine, delivery)
    with pytest.raises(ResultNotKept):
        queue.result(engine, delivery.message_id, timeout=PATIENCE)
    with pytest.raises(UnknownMessage):
        queue.result(engine, delivery.message_id + 1000, timeout=PATIENCE)
    assert database.value(LISTENERS) == 0


def test_waits_that_a_process_left(out: Out, database: Database) -> None:
    """They end by themselves: nobody is notified of them then, and housekeeping deletes them."""
    message_id = out().message_id
    for microseconds, is_notified in ((1, False), (3_600_000_000, True)):
        database.execute(f"select fq_wait_for_result('documents', {message_id}, gen_random_uuid(), {microseconds})")
        wakes = database.value(f"select fq_wake_results('documents', array[{message_id}]::bigint[])")
        assert wakes is is_notified
    database.execute("select deleted from fq_prune_expired(10)")
    assert database.value(_WAITS) == 1


def test_the_connection_ends_with_the_engine(database: Database, queue: Queue, out: Out) -> None:
    """It stays for the next wait, and goes when the engine is disposed of."""
    delivery = out()
    other = create_engine(database.url, poolclass=NullPool)
    with pytest.raises(ResultNotReady):
        queue.result(other, delivery.message_id, timeout=timedelta(milliseconds=1))
    until(lambda: database.value(LISTENERS) == 1, "it listens")
    other.dispose()
    until(lambda: database.value(LISTENERS) == 0, "it ends")


def test_nobody_who_completes_waits_for_one_who_waits(engine: Engine, queue: Queue, out: Out, waits: Any) -> None:
    """A wait that is being registered hinders no completion, and the other way round."""
    delivery = out()
    with engine.connect() as connection, connection.begin():
        sql = "select fq_wait_for_result('documents', :id, gen_random_uuid(), 1000000)"
        connection.execute(text(sql), {"id": delivery.message_id})
        waits.unhindered(lambda rival: queue.complete(rival, delivery, result=1))
    other = out()
    with engine.connect() as connection, connection.begin():
        queue.complete(connection, other, result=1)
        with pytest.raises(ResultNotReady):
            waits.unhindered(lambda rival: queue.result(rival, other.message_id, timeout=timedelta()))


def test_a_cancel_and_a_completion_at_once(engine: Engine, queue: Queue, out: Out, waits: Any) -> None:
    """Who has the message first decides what became of it."""
    first, second = out(), out()
    with engine.connect() as connection:
        with connection.begin():
            queue.cancel(connection, first.message_id)
            rival = waits.start(lambda other: queue.complete(other, first, result=1)).blocked()
        rival.result()
        with pytest.raises(ResultCancelled):
            queue.result(engine, first.message_id)
        with connection.begin():
            queue.complete(connection, second, result=1)
            rival = waits.start(lambda other: queue.cancel(other, second.message_id)).blocked()
        assert rival.result().outcome == "missing"
    assert queue.result(engine, second.message_id) == 1


def test_many_threads(engine: Engine, queue: Queue, out: Out) -> None:
    """More than the pool has connections wait at once."""
    deliveries = [out() for _ in range(15)]
    ids = [one.message_id for one in deliveries]
    with ThreadPoolExecutor(len(ids)) as threads:
        waiting = [threads.submit(queue.result, engine, one, timeout=PATIENCE) for one in ids]
        for delivery in deliveries:
            queue.complete(engine, delivery, result=delivery.message_id)
    assert [one.result() for one in waiting] == ids


def test_a_standby_polls(engine: Engine, queue: Queue, out: Out, database: Database, start: Start) -> None:
    """Where nothing can be written a wait cannot be registered, and finds the end all the same."""
    standby = create_engine(database.url, connect_args={"options": "-c default_transaction_read_only=on"})
    delivery = out()
    polls: list[object] = []
    event.listen(standby, "after_cursor_execute", lambda *arguments: polls.append(arguments[2]))
    waiting = start(lambda: queue.result(standby, delivery.message_id, timeout=PATIENCE))
    until(lambda: len(polls) > 2 or waiting.done(), "it polls")
    queue.complete(engine, delivery, result="done")
    assert waiting.result(_LONG) == "done"
    standby.dispose()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
