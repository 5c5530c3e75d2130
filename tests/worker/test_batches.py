"""Handlers of batches: they get what a channel has ready, and all of it is settled together."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    AsyncWorker,
    Batch,
    Context,
    Delivery,
    Enqueue,
    InvalidArgument,
    Queue,
    Retry,
    Worker,
)
from sqlalchemy_fairqueue.unit_of_work.sessions import recorded
from sqlalchemy_fairqueue.worker import handling
from sqlalchemy_fairqueue.worker.executor import ThreadExecutor
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue
from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger
from tests.fixtures.database import Database
from tests.worker import isolated
from tests.worker.conftest import MakeWorker, StartWorker
from tests.worker.helpers import (
    AT_ONCE,
    LATER,
    LONG_LEASE,
    MANY_HEARTBEATS,
    Busy,
    count_effects,
    drained,
    given_back,
    is_empty,
    send,
    until,
)

_BATCH = Batch(max_messages=5)
_ONE: Any = {"concurrency": 1, "retry": LATER}


def test_a_call_gets_what_its_channel_has(queue: Queue, engine: Engine, database: Database, drain: MakeWorker) -> None:
    """Each message comes once, in the order of its channel, with no other channel's, and all are completed."""
    calls: list[tuple[str, list[int]]] = []

    @queue.handler(batch=_BATCH)
    def handle(deliveries: list[Delivery]) -> None:
        calls.append((deliveries[0].channel, [delivery.payload for delivery in deliveries]))
        assert len({delivery.channel for delivery in deliveries}) == 1

    send(engine, queue, *range(12), channel="a")
    send(engine, queue, *range(3), channel="b")
    drain(queue, **_ONE)

    assert [one for channel, some in calls if channel == "a" for one in some] == list(range(12))
    assert [some for channel, some in calls if channel == "b"] == [[0, 1, 2]]
    assert max(len(some) for _, some in calls) == 5
    assert database.value("select count(*) from fq_message") == 0


def test_what_it_costs(queue: Queue, engine: Engine) -> None:
    """A call gets no more than its cost, but one message in any case."""
    calls: list[list[int]] = []

    @queue.handler(batch=Batch(max_messages=9, max_cost=10))
    def handle(deliveries: list[Delivery]) -> None:
        calls.append([delivery.payload for delivery in deliveries])

    for payload, cost in enumerate([4, 6, 1, 20, 5]):
        send(engine, queue, payload, cost=cost)
    drained(engine, queue, concurrency=1)
    assert calls == [[0, 1], [2], [3], [4]]


def test_outcomes_in_a_list_settle_nothing(queue: Queue, engine: Engine, database: Database) -> None:
    """A handler that returns an outcome for each of its deliveries has failed, and the error says what to call."""
    queue.handler(batch=_BATCH)(lambda deliveries: [None, Retry(), *deliveries[2:]])
    send(engine, queue, *range(3))
    drained(engine, queue, **_ONE)
    errors = [row.error for row in database.rows("select error from fq_message")]
    assert ["context.retry(delivery)" in error for error in errors] == [True] * 3


def _settle_apart(deliveries: list[Delivery], context: Context) -> None:
    assert [one.message_id for one in context.deliveries] == [one.message_id for one in deliveries]
    context.retry(deliveries[1], delay=timedelta(hours=1), error="busy")
    context.bury(deliveries[2], "bad")
    context.release(deliveries[3], delay=timedelta(hours=1))


_INSERT = text("insert into effect values (:message_id)")


def _effects(deliveries: list[Delivery]) -> list[dict[str, int]]:
    return [{"message_id": delivery.message_id} for delivery in deliveries]


def test_a_commit_that_settles_many_looks_once_at_what_is_recorded(
    queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for all of them at once, so its work does not grow with the square of the batch."""
    looked: list[object] = []

    def look(session: Session) -> Any:
        looked.append(session)
        return recorded(session)

    monkeypatch.setattr(handling, "recorded", look)

    @queue.handler(batch=_BATCH)
    def handle(_: list[Delivery], session: Session) -> None: ...

    send(engine, queue, *range(5))
    assert (drained(engine, queue, concurrency=1).stats.completed, len(looked)) == (5, 1)


@pytest.mark.usefixtures("effects")
@pytest.mark.parametrize("how", ["plain", "session", "async session"])
async def test_single_ones_end_in_another_way(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, how: str
) -> None:
    """What the handler asks for one of them holds for it alone; the others are completed with what it wrote."""

    def write(deliveries: list[Delivery], context: Context, session: Session) -> None:
        _settle_apart(deliveries, context)
        session.execute(_INSERT, _effects(deliveries))

    async def awrite(deliveries: list[Delivery], context: Context, session: AsyncSession) -> None:
        await session.run_sync(lambda sync: write(deliveries, context, sync))

    handlers: dict[str, Any] = {"plain": _settle_apart, "session": write, "async session": awrite}
    queue.handler(batch=_BATCH)(handlers[how])
    send(engine, queue, *range(5))
    if how == "async session":
        await AsyncWorker(async_engine, queue, housekeeping=False, **_ONE).run(drain=True)
    else:
        await asyncio.to_thread(drained, engine, queue, **_ONE)

    left = "select convert_from(content, 'utf8'), attempts, error from fq_message order by id"
    assert list(map(tuple, database.rows(left))) == [("1", 1, "busy"), ("3", 0, None)]
    assert database.value("select reason from fq_dead_letter") == "bad"
    assert count_effects(database) == (0 if how == "plain" else 5)


@pytest.mark.usefixtures("effects")
@pytest.mark.parametrize("fails", ["raises", "commits nothing"])
def test_only_the_poison_dies(queue: Queue, engine: Engine, database: Database, fails: str) -> None:
    """A failure costs each message an attempt, and nothing of it is committed; then they come one by one."""
    calls: list[list[int]] = []

    def check(deliveries: list[Delivery]) -> None:
        calls.append([delivery.payload for delivery in deliveries])
        if any(delivery.payload == 2 for delivery in deliveries):
            raise ValueError("poison")

    def write(deliveries: list[Delivery], session: Session) -> None:
        session.execute(_INSERT, _effects(deliveries))
        check(deliveries)

    queue.handler(batch=_BATCH, retry=AT_ONCE)(check if fails == "raises" else write)
    send(engine, queue, *range(5), max_attempts=3)
    drained(engine, queue, concurrency=1)
    first, *alone = calls
    assert first == list(range(5))
    assert all(len(some) == 1 for some in alone)
    assert sorted({some[0] for some in alone}) == list(range(5))
    assert database.value("select convert_from(content, 'utf8') from fq_dead_letter") == "2"
    assert is_empty(database)
    assert count_effects(database) == (0 if fails == "raises" else 4)


@pytest.mark.many(1)
@pytest.mark.usefixtures("forked_children")
def test_in_a_child_process(queue: Queue, engine: Engine, database: Database, drain: MakeWorker) -> None:
    """A handler in a child process gets a batch, and settles single ones, too. A batch whose child dies has failed; its
    messages are then tried alone, and the others are done.
    """
    queue.handler(batch=_BATCH, isolation="process", retry=AT_ONCE)(isolated.die_of_poison)
    for channel, payloads in ("a", ["good", "poison", "good", "bad"]), ("b", ["good", "bad", "good"]):
        send(engine, queue, *payloads, channel=channel, max_attempts=2)
    drain(queue, **_ONE)
    letters = [(one.payload, one.attempts, one.reason) for one in queue.dead_letters.list(engine)]
    assert sorted(letters) == [
        ("bad", 1, "bad among 3"), ("bad", 2, "bad among 1"), ("poison", 2, "attempts exhausted"),
    ]  # fmt: skip
    assert is_empty(database)


def test_a_cancelled_message_takes_no_other_with_it(
    queue: Queue, engine: Engine, database: Database, start: StartWorker
) -> None:
    """If one message of a batch is cancelled meanwhile, it is gone, and the others are done again, uncounted."""
    calls: list[list[int]] = []

    @queue.handler(batch=_BATCH)
    def handle(deliveries: list[Delivery], context: Context) -> None:
        calls.append([delivery.payload for delivery in deliveries])
        if len(deliveries) == 3:
            until(lambda: context.cancelled, "the cancel is known")
            context.check()

    queue.configure(engine, history=True)
    send(engine, queue, *range(3))
    ids = [row[0] for row in database.rows("select id from fq_message order by id")]
    start(queue, concurrency=1, lease=LONG_LEASE, timings=MANY_HEARTBEATS)
    until(lambda: calls, "they are at work")
    queue.cancel(engine, ids[1])
    until(lambda: is_empty(database), "all is done")
    assert calls[0] == [0, 1, 2]
    assert sorted(one for some in calls[1:] for one in some) == [0, 2]
    assert [one.outcome for one in queue.admin.attempts(engine, ids[1])] == ["cancelled"]
    assert queue.dead_letters.list(engine) == []


def test_groups_of_a_batch(queue: Queue, engine: Engine, drain: MakeWorker) -> None:
    """Each message of a batch has its own group; the batch has none where they differ."""
    seen: list[object] = []

    @queue.handler(batch=_BATCH)
    def handle(deliveries: list[Delivery], context: Context) -> None:
        seen.extend(group and group.id for group in map(context.group_of, deliveries))
        with pytest.raises(InvalidArgument, match="different groups"):
            _ = context.group

    ids = []
    for number in range(2):
        with Session(engine) as session, session.begin(), queue.group(session, then=None) as group:
            group.enqueue_many([Enqueue(channel="a", payload=number)])
        ids.append(group.id)
    queue.enqueue(engine, channel="a", payload=2)
    drain(queue, concurrency=1)
    assert seen == [*ids, None]


def test_a_stop_gives_all_back(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, busy: Busy
) -> None:
    """What is still at work at the end of the grace is given back as a whole, uncounted."""
    queue.handler(batch=_BATCH)(busy)
    send(engine, queue, *range(4))
    worker = start(queue, concurrency=1)
    busy.begun()
    worker.stop(timedelta())
    assert (len(busy.contexts[0].deliveries), given_back(database)) == (4, 4)


def test_a_timeout_fails_all(queue: Queue, engine: Engine, database: Database, drain: MakeWorker) -> None:
    """When the time of a call is over, each of its messages has failed an attempt, and is counted."""

    @queue.handler(batch=_BATCH, timeout=timedelta(milliseconds=50))
    def handle(_: list[Delivery], context: Context) -> None:
        until(lambda: context.timed_out, "its time is over")
        context.check()

    send(engine, queue, *range(4))
    assert drain(queue, **_ONE).stats.timed_out == 4
    rows = database.rows("select attempts, error like '%HandlerTimeout%' from fq_message")
    assert list(map(tuple, rows)) == [(1, True)] * 4


@pytest.mark.parametrize("unreadable", [0, 2])
def test_one_that_cannot_be_read_joins_none(
    queue: Queue, engine: Engine, database: Database, drain: MakeWorker, unreadable: int
) -> None:
    """A payload that is not the codec's becomes a dead letter, the first one's too, and the others are handled."""
    calls: list[list[int]] = []

    @queue.handler(batch=_BATCH)
    def handle(deliveries: list[Delivery]) -> None:
        calls.append([delivery.payload for delivery in deliveries])

    send(engine, queue, *range(4))
    database.execute(f"update fq_message set content = '\\xff' where content = '{unreadable}'")
    drain(queue, **_ONE)
    assert [one for some in calls for one in some] == [one for one in range(4) if one != unreadable]
    assert str(database.value("select reason from fq_dead_letter")).startswith("its payload cannot be decoded")


def test_it_shares_what_it_cost(queue: Queue, engine: Engine, database: Database) -> None:
    """A cost that the handler tells is shared by the messages of the call, to the last unit."""
    queue.configure(engine, fair_by="cost", history=True)

    @queue.handler(batch=_BATCH)
    def handle(_: list[Delivery], context: Context) -> None:
        context.cost = 11

    send(engine, queue, *range(3))
    drained(engine, queue, concurrency=1)
    assert [row[0] for row in database.rows("select cost from fq_history order by message_id")] == [5, 3, 3]


def test_what_was_taken_is_handled_whatever_fails_then(
    queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """If the database does not give more, the handler gets what was taken, and the worker tells and goes on."""
    database.execute("drop function fq_take_more")
    calls: list[int] = []

    @queue.handler(batch=_BATCH)
    def handle(deliveries: list[Delivery]) -> None:
        calls.extend(delivery.payload for delivery in deliveries)

    send(engine, queue, *range(3))
    drained(engine, queue, concurrency=1)
    assert calls == [0, 1, 2]
    assert "fq_take_more" in caplog.text


@pytest.mark.parametrize(
    "declare",
    [
        lambda _: Batch(max_messages=1),
        lambda _: Batch(max_messages=2, max_cost=0),
        lambda queue: queue.handler(batch=5),
    ],
)
def test_bad_batches(queue: Queue, declare: Callable[[Queue], object]) -> None:
    """They are refused when they are declared."""
    with pytest.raises(InvalidArgument, match=r"^(max_messages|max_cost|batch) is"):
        declare(queue)


def test_a_delivery_of_another_call_is_refused(queue: Queue, engine: Engine, database: Database) -> None:
    """Only what the call got can be settled by its context."""
    send(engine, queue, *range(2))
    [other] = queue.dequeue(engine)
    queue.handler(batch=_BATCH)(lambda _, context: context.bury(other, "mine"))
    drained(engine, queue, **_ONE)
    assert "InvalidArgument" in database.value("select error from fq_message where error is not null")
    assert queue.dead_letters.list(engine) == []


def test_what_leaves_a_batch_has_no_part_in_its_cost(queue: Queue, engine: Engine, database: Database) -> None:
    """A message that cannot be decoded costs nothing of the call, also if it is settled when the call has ended."""
    queue.handler(batch=_BATCH)(print)
    send(engine, queue, *range(2))
    database.execute(r"update fq_message set content = '\xff' where id = 2")
    options, left = Worker(engine, queue)._options, list[HeldDelivery]()
    served = ServedQueue(queue, options, {})
    with engine.begin() as connection:
        taken = served.consumer.dequeue(connection, 2, options.ask, options.max_bytes)
    first = served.hold(taken, 0.0)
    trigger = FetchTrigger(options.clock)
    ThreadExecutor(options, trigger, lambda held, _: left.append(held))._begin_handling(first)
    first.cost = 7
    assert first.measured_cost == 7
    assert [(held.delivery.message_id, held.measured_cost) for held in left] == [(2, None)]
