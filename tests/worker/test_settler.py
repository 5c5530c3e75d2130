"""Settlements while others are in the way."""

import contextlib
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from sqlalchemy_fairqueue import (
    Bury,
    ChannelPolicy,
    Context,
    Delivery,
    Queue,
    Release,
    ResultNotKept,
    Retry,
    SchemaMismatch,
    Worker,
)
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.unit_of_work.operations import Settle, Verb, settle
from sqlalchemy_fairqueue.worker import settler
from sqlalchemy_fairqueue.worker.fetcher import Fetcher
from sqlalchemy_fairqueue.worker.leases import COMPLETE, Decision, HeldDelivery
from sqlalchemy_fairqueue.worker.settler import Settler
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import StartWorker
from tests.worker.helpers import Busy, aside, drained, held_of, is_empty, polled_again, send, until


@contextlib.contextmanager
def _locked(connect: Connect, message_id: int) -> Iterator[None]:
    """Somebody has a message locked during the block."""
    with connect() as operator:
        operator.execute(text("select from fq_message where id = :id for update"), {"id": message_id})
        yield
        operator.rollback()


def test_a_locked_message_keeps_no_other_waiting(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, connect: Connect, start: StartWorker, busy: Busy
) -> None:
    """A completion that must wait for somebody's lock is tried again alone; all others go on."""
    queue.handler()(busy)
    locked, *_ = send(engine, queue, *range(8))
    worker = start(queue, concurrency=8, timings={"locked_again": 0.2})
    busy.begun(8)
    with _locked(connect, locked):
        busy.go.set()
        until(lambda: worker.stats.completed == 7, "the others are completed")
        send(engine, queue, 9)
        until(lambda: worker.stats.completed == 8, "and what comes later")
    until(lambda: is_empty(database), "the last one is completed")
    assert worker.stats.failures == 0


def test_a_queue_that_is_refused_keeps_no_other_waiting(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    connect: Connect,
    start: StartWorker,
    busy: Busy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While one queue's schema does not fit, another queue's messages are settled, also one that was locked."""

    def refuse(connection: Connection, target: Target, verb: Verb, operations: list[Settle]) -> None:
        if target.queue == queue.name:
            raise SchemaMismatch("it does not fit")
        settle(connection, target, verb, operations)

    monkeypatch.setattr(settler, "settle", refuse)
    mails = Queue("mails")
    for one in (queue, mails):
        one.handler()(busy)
    send(engine, queue, 1)
    [locked] = send(engine, mails, 1)
    worker = start(queue, mails, concurrency=2, timings={"locked_again": 0.2})
    busy.begun(2)
    with _locked(connect, locked):
        busy.go.set()
        until(lambda: worker.stats.failures > 2, "the other queue is refused")
        send(engine, mails, 2)
        until(lambda: worker.stats.completed == 1, "what is not locked is completed")
    until(lambda: worker.stats.completed == 2, "so is the other one of its queue")
    monkeypatch.undo()
    until(lambda: is_empty(database), "the first one is settled when it can be")


def test_a_stop_waits_for_a_locked_message(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    connect: Connect,
    start: StartWorker,
    busy: Busy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A worker that is stopped while a completion waits for somebody's lock still tries it, and completes it."""
    queue.handler()(busy)
    [locked] = send(engine, queue, 1)
    worker = start(queue, timings={"settle_at_stop": PATIENCE.total_seconds(), "locked_again": 0.2})
    busy.begun()
    assert worker._runtime is not None
    settling = worker._runtime.settler
    with contextlib.ExitStack() as stopping, _locked(connect, locked):
        busy.go.set()
        until(lambda: "somebody has it locked" in caplog.text, "it cannot be completed yet")
        stop = stopping.enter_context(aside(worker.stop))
        until(lambda: settling._give_up_at is not None, "it is told to end")
        flushes = worker.stats.flushes
        until(lambda: worker.stats.flushes > flushes + 1 or not stop.is_alive(), "it is tried again")
    assert (worker.stats.completed, is_empty(database)) == (1, True)


def test_a_locked_message_and_an_outage(
    handled: Queue, engine: Engine, database: Database, start: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A completion that waited for a lock, and whose second try meets an outage, is not forgotten."""
    original = Settler.write
    calls: list[str] = []

    def hindered(writer: Settler, queue: Any, verb: Any, settlements: Any) -> Any:
        calls.append(verb.value)
        if len(calls) == 1:
            return list(settlements)
        if len(calls) == 2:
            raise ConnectionError("the database is away")
        return original(writer, queue, verb, settlements)

    monkeypatch.setattr(Settler, "write", hindered)
    send(engine, handled, 1)
    worker = start(handled, lease=timedelta(hours=1), timings={"locked_again": 0.01})
    until(lambda: is_empty(database), "it is completed")
    assert calls == ["complete"] * 3
    assert worker.stats.failures == 1


def test_a_slow_settler_is_fed_no_more(
    handled: Queue, engine: Engine, start: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While more deliveries wait to be settled than a worker may owe, it takes no others."""
    sending, go = threading.Event(), threading.Event()
    taken: list[int] = []
    send_now, one_round = Settler.write, Fetcher._round

    def slow(*arguments: Any) -> Any:
        sending.set()
        until(go.is_set, "it may go on")
        return send_now(*arguments)

    def watched(fetcher: Fetcher) -> float:
        owes = sending.is_set() and fetcher.settler.backlog > 20
        before = fetcher.options.stats.taken
        wait = one_round(fetcher)
        if owes:
            taken.append(fetcher.options.stats.taken - before)
        return wait

    monkeypatch.setattr(Settler, "write", slow)
    monkeypatch.setattr(Fetcher, "_round", watched)
    send(engine, handled, *range(200))
    worker = start(handled, concurrency=4, timings={"unsettled": 20})
    assert worker._runtime is not None
    runtime = worker._runtime

    def has_gone_its_rounds() -> bool:
        runtime.trigger.set()
        return len(taken) >= 10

    until(has_gone_its_rounds, "it has done a round")
    go.set()
    assert not any(taken)


@pytest.mark.parametrize(("most", "ordering_key"), [(1, None), (None, "k")])
def test_what_an_end_lets_go_first_is_looked_for(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, start: StartWorker, seen: list[object], most: int | None, ordering_key: str | None
) -> None:
    """By a channel's limit or an ordering key a message waits for the end of the one before, and not for a poll."""
    queue.configure_channel(engine, "customer-1", ChannelPolicy(max_concurrency=most))
    send(engine, queue, *range(40), ordering_key=ordering_key)
    start(queue, poll_interval=timedelta(hours=1))
    until(lambda: len(seen) == 40, "all are done")
    assert seen == list(range(40))


@pytest.mark.parametrize(
    ("holds_slot", "held", "decision", "is_reason"),
    [
        (False, 0.0, COMPLETE, False),
        (True, 0.0, COMPLETE, True),
        # It may hold a slot of a limit that its dequeue did not know of.
        (False, 2.0, COMPLETE, True),
        (False, 0.0, Decision(Verb.RETRY, delay=timedelta(hours=1)), False),
        (True, 0.0, Decision(Verb.RETRY, delay=timedelta(hours=1)), True),
        (False, 0.0, Decision(Verb.RELEASE), True),
    ],
)
def test_what_makes_no_room_is_no_reason_to_poll(
    queue: Queue, engine: Engine, held: float, decision: Decision, *, holds_slot: bool, is_reason: bool
) -> None:
    """After a settlement there may be something to take if a slot became free, or the message itself is ready again."""
    delivery = cast("Delivery", SimpleNamespace(holds_slot=holds_slot, ordering_key=None, max_attempts=1))
    out = HeldDelivery(delivery, cast("Any", None), cast("Any", None), monotonic() - held, decision=decision)
    settler = Settler(Worker(engine, queue)._options, lambda _: None)
    assert settler._makes_room(out) == is_reason


def test_a_statement_timeout(queue: Queue, engine: Engine, database: Database, connect: Connect, busy: Busy) -> None:
    """Where no lock timeout can be set, a statement timeout of the application's keeps a lock from the others, too."""
    own = create_engine(engine.url, connect_args={"options": "-c statement_timeout=300ms"})
    queue.handler()(busy)
    locked, *_ = send(engine, queue, *range(4))
    with Worker(own, queue, listen=False, housekeeping=False) as worker:
        busy.begun(4)
        with _locked(connect, locked):
            busy.go.set()
            until(lambda: worker.stats.completed == 3, "the others are completed")
        until(lambda: is_empty(database), "the last one is completed")
    own.dispose()


def test_many_at_a_time(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    start: StartWorker,
    seen: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ends while a call is under way goes with the next ones, so many at a time."""
    original = Settler.write

    def slow(*arguments: Any) -> Any:
        until(lambda: len(seen) == 150, "all handlers have ended")
        return original(*arguments)

    monkeypatch.setattr(Settler, "write", slow)
    send(engine, queue, *range(150))
    # However slow the machine is, nothing that was taken ahead is given back: that would wait for this call.
    worker = start(queue, lease=timedelta(hours=1), timings={"settle_batch": 100, "stale_after": 1e9})
    until(lambda: is_empty(database), "all are done")
    assert worker.stats.flushes <= 4


def _refuse(database: Database, on: str, when: str, code: str = "23514", name: str = "refuse") -> None:
    """Let the database refuse what it is told by a trigger."""
    database.execute(
        f"create function {name}() returns trigger language plpgsql as"
        f" $$ begin raise exception 'not this one' using errcode = '{code}'; end $$;"
        f"create trigger {name} before {on} for each row when ({when}) execute function {name}()"
    )


def test_an_end_that_the_database_refuses_is_an_attempt(
    queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, its message tried again without those words, and counts; its neighbours are settled."""
    codes = ["23514", "21000", "AB001"]
    for code in codes:
        _refuse(database, "update on fq_message", f"new.error = '{code}'", code, f"refuse_{code}")
    queue.handler()(_retry_with)
    send(engine, queue, "good", *codes, "fine")
    drained(engine, queue)
    rows = database.rows("select error, attempts, dequeue_at - fq_now() > 3.5e9 as late from fq_message order by id")
    assert list(map(tuple, rows)) == [("good", 1, True), *[(None, 1, True)] * 3, ("fine", 1, True)]
    assert caplog.text.count("cannot be settled by retry") == caplog.text.count(" tries to retry it: not this one") == 3


def _retry_with(delivery: Delivery) -> Retry:
    """Ask to be tried again, with the payload as the error."""
    return Retry(delay=timedelta(hours=1), error=str(delivery.payload))


def test_an_end_that_cannot_be_sent_costs_its_own_message(
    queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told by id and kind, and tried again without those words; all others of the batch are settled."""

    def refuse(_: object, statement: str, parameters: Any, __: object) -> None:
        if "fq_end_attempts(" in statement and "bad" in str(parameters):
            raise AttributeError("no attribute '_to_microseconds'")

    queue.handler("odd")(_retry_with)
    queue.handler("even")(lambda _: None)
    [*_, bad] = send(engine, queue, "good", "fine", "bad", kind="odd")
    send(engine, queue, *range(20), kind="even", channel="customer-2")
    event.listen(engine, "do_execute", refuse)
    worker = drained(engine, queue)
    assert (worker.stats.completed, worker.stats.retried, worker.stats.failures) == (20, 3, 0)
    rows = database.rows("select error, attempts from fq_message order by id")
    assert list(map(tuple, rows)) == [("good", 1), ("fine", 1), (None, 1)]
    said = "kind odd cannot be settled by retry, so the worker tries to retry it: AttributeError"
    assert f"message {bad} of queue documents, channel customer-1, {said}" in caplog.text


class _Text:
    """A codec that forgets to encode."""

    def encode(self, payload: Any) -> Any:
        return b"1" if payload == 1 else json.dumps(payload)

    def decode(self, content: bytes) -> Any:
        return json.loads(content)


def test_a_result_that_is_no_bytes(engine: Engine) -> None:
    """A result that the codec does not make bytes of is not kept, says so, and its message is completed."""
    queue = Queue("documents", codec=_Text())
    queue.configure(engine, result_retention=timedelta(hours=1))
    queue.handler()(lambda _: "text")
    [message_id] = send(engine, queue, 1)
    assert drained(engine, queue).stats.completed == 1
    with pytest.raises(ResultNotKept, match="_Text made a str of it"):
        queue.result(engine, message_id)


def test_what_is_about_no_message_costs_no_attempt(
    queue: Queue, engine: Engine, database: Database, start: StartWorker
) -> None:
    """What the role may not do, or a deadlock, is not the message's: its end waits, under its lease, till it can be."""
    called: list[int] = []
    queue.handler()(lambda delivery: called.append(delivery.deliveries))
    worker = start(queue, lease=timedelta(hours=1))
    for done, code in enumerate(("42501", "40001", "40P01"), 1):
        _refuse(database, "delete on fq_message", "true", code)
        failures = worker.stats.failures
        send(engine, queue, code)
        until(lambda: worker.stats.failures > failures or worker.stats.retried, "it was refused")  # noqa: B023
        assert database.value("select attempts = 1 and lease_id is not null from fq_message"), code
        database.execute("drop trigger refuse on fq_message; drop function refuse")
        until(lambda: worker.stats.completed == done, "it is counted")  # noqa: B023
    assert is_empty(database)
    assert (called, worker.stats.retried, worker.stats.released) == ([1] * 3, 0, 0)


def test_a_dead_letter_in_place_of_another_is_counted(
    queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """At the last attempt another dead letter is sent for one that is refused, and counted."""
    _refuse(database, "insert on fq_dead_letter", "new.reason = 'no good'")
    queue.handler()(lambda _: Bury("no good"))
    send(engine, queue, 1, max_attempts=1)
    worker = drained(engine, queue)
    assert (worker.stats.buried, worker.stats.retried) == (1, 0)
    assert "is a dead letter now, at attempt 1 of 1: attempts exhausted" in caplog.text


def test_an_end_that_the_database_refuses_for_ever_comes_ever_later(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot become a dead letter is given back for longer and longer, and keeps its worker from nothing."""
    _refuse(database, "insert on fq_dead_letter", "true")
    queue.handler()(lambda delivery: Bury("it is no good") if delivery.payload == "bad" else None)
    send(engine, queue, "bad", max_attempts=1)
    worker = start(queue)
    until(lambda: worker.stats.released == 1, "it is given back")
    send(engine, queue, "good")
    until(lambda: worker.stats.completed == 1, "the worker goes on")
    # (By now it may have been due again.)
    assert database.value("select dequeue_at > enqueued_at from fq_message")
    assert [" tries to bury it:" in caplog.text, " tries to release it:" in caplog.text] == [True, True]


def test_an_end_that_nothing_can_replace(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """What cannot even be given back stays under its lease, which ends: nothing else is taken under it."""
    _refuse(database, "update on fq_message", "old.lease_id is not null and new.lease_id is null")
    contexts: list[Context] = []

    @queue.handler()
    def handle(delivery: Delivery, context: Context) -> Release | None:
        contexts.append(context)
        return Release() if delivery.payload == "bad" else None

    worker = start(queue, listen=False, poll_interval=timedelta(milliseconds=20))
    send(engine, queue, "bad")
    until(lambda: contexts and not held_of(contexts[0]).lease.held, "it is refused")
    polled_again(worker)
    send(engine, queue, "good")
    until(lambda: worker.stats.completed == 1, "the worker goes on")
    bad, good = (context.delivery.lease.id for context in contexts)
    assert bad != good
