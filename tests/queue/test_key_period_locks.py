"""Keys with a period among concurrent transactions: who waits for whom, and that one message is added."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue, Receipt
from sqlalchemy_fairqueue.database.errors import refusal_of
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.queue.periods import HOUR, SECOND, complete_all, enqueue_key

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.messages import OnDuplicate

QUEUE = Queue("documents")
_SERIALIZATION_FAILURE = "40001"


_enqueue = partial(enqueue_key, QUEUE)
_done = partial(complete_all, QUEUE)


def _enqueue_at_once(connection: Connection, **words: Any) -> int:
    words = {"channel": "a", "payload": 1, "key": "k", "unique_for": HOUR, **words}
    found = QUEUE.enqueue(connection, **words).message_id
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def made(engine: Engine) -> None:
    """Channel "a" exists, so that nobody waits for another transaction that makes it."""
    QUEUE.enqueue(engine, channel="a", payload="made")
    _done(engine)


@pytest.mark.parametrize("committed", [True, False])
def test_waits_and_then_sees(engine: Engine, connect: Connect, waits: Waits, clock: Clock, *, committed: bool) -> None:
    """A key that another transaction adds, or takes over from a period that is over, is waited for: then it stands, or
    is free.
    """
    for over, unique_from in product((False, True), ("enqueue", "completion")):
        holder = connect()
        channel = f"{over} {unique_from}"
        enqueue = partial(_enqueue, channel=channel, unique_from=unique_from)
        if over:
            enqueue(engine)
            _done(engine)
            clock.advance(HOUR)
        message_id = _enqueue_at_once(holder, channel=channel, unique_from=unique_from)
        rival = waits.start(enqueue).blocked()
        if committed:
            holder.commit()
            assert (rival.result().created, rival.result().message_id) == (False, message_id)
        else:
            holder.rollback()
            assert rival.result().created
        _done(engine)


def test_a_savepoint_frees_the_key(connect: Connect, waits: Waits) -> None:
    """Who waits for a key goes on when the savepoint that added it is rolled back, before the transaction ends."""
    holder = connect()
    with holder.begin():
        savepoint = holder.begin_nested()
        _enqueue_at_once(holder)
        rival = waits.start(_enqueue).blocked()
        savepoint.rollback()
        assert rival.result().created


def test_an_open_end(engine: Engine, connect: Connect, waits: Waits, clock: Clock) -> None:
    """Within the period a duplicate is told at once, also while another transaction ends the message; a message that
    has outlived its period holds its key as one without, and who wants the key waits for its end.
    """
    holder = connect()
    for unique_from in ("enqueue", "completion"):
        enqueue = partial(_enqueue, channel=unique_from, unique_from=unique_from)
        first = enqueue(engine)
        QUEUE.complete(holder, QUEUE.dequeue(engine, lease=12 * HOUR))
        assert waits.unhindered(enqueue).message_id == first.message_id
        holder.commit()
        clock.advance(HOUR - SECOND)
        assert waits.unhindered(enqueue).message_id == first.message_id
        clock.advance(SECOND)
        assert enqueue(engine).created
        QUEUE.purge(engine, unique_from)
    _enqueue(engine)
    [delivery] = QUEUE.dequeue(engine, lease=12 * HOUR)
    clock.advance(HOUR)
    QUEUE.complete(holder, delivery)
    rival = waits.start(_enqueue).blocked()
    holder.commit()
    assert rival.result().created


def test_a_period_that_begins_and_whose_message_ends_meanwhile(
    engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """A call that waits for one key finds the period that another key got meanwhile, though its message has ended."""
    holder = connect()
    _enqueue_at_once(holder, key="a", unique_for=None)

    def enqueue(rival: Engine) -> list[Receipt]:
        return QUEUE.enqueue_many(
            rival,
            [
                Enqueue(channel="a", payload="rival", key="k", unique_for=HOUR),
                Enqueue(channel="a", payload="rival", key="a"),
                Enqueue(channel="a", payload="rival"),
            ],
        )

    rival = waits.start(enqueue).blocked()
    between = _enqueue(engine)
    _done(engine)
    holder.rollback()
    period, plain, keyless = rival.result()
    assert (period.outcome, period.message_id) == ("duplicate", between.message_id)
    assert plain.created
    assert keyless.created
    assert database.value("select count(*) from fq_message") == 2
    assert database.value("select sum(added) from fq_signal") == 2


def test_a_message_that_is_taken_while_it_is_to_be_replaced(
    engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """A call that found it waiting, and then finds it held, leaves it its key, and adds nothing."""
    first = _enqueue(engine, "first")
    holder = connect()
    _enqueue_at_once(holder, key="a", unique_for=None)

    def replace(rival: Engine) -> list[Receipt]:
        return QUEUE.enqueue_many(
            rival,
            [
                Enqueue(channel="a", payload="rival", key="a"),
                Enqueue(channel="a", payload="rival", key="k", unique_for=HOUR, on_duplicate="replace"),
            ],
        )

    rival = waits.start(replace).blocked()
    [delivery] = QUEUE.dequeue(engine)
    assert delivery.payload == "first"
    holder.rollback()
    plain, replaced = rival.result()
    assert plain.created
    assert (replaced.outcome, replaced.message_id) == ("duplicate", first.message_id)
    assert database.value("select count(*) from fq_message where key = 'k'") == 1
    QUEUE.complete(engine, delivery)
    assert [one.payload for one in QUEUE.dequeue(engine, limit=10)] == ["rival"]


def test_two_replace(engine: Engine, connect: Connect, waits: Waits, clock: Clock) -> None:
    """One waits for the other, and both rewrite the message; the period is that of the last one."""
    first = _enqueue(engine, "first")
    holder = connect()
    _enqueue_at_once(holder, payload="second", on_duplicate="replace", unique_for=10 * HOUR)
    rival = waits.start(lambda rival: _enqueue(rival, "third", on_duplicate="replace", unique_for=2 * HOUR)).blocked()
    holder.commit()
    assert (rival.result().outcome, rival.result().message_id) == ("replaced", first.message_id)
    [delivery] = QUEUE.dequeue(engine)
    assert delivery.payload == "third"
    QUEUE.complete(engine, delivery)
    clock.advance(2 * HOUR - SECOND)
    assert not _enqueue(engine).created
    clock.advance(SECOND)
    assert _enqueue(engine).created


@pytest.mark.parametrize(
    ("level", "unique_from"), [("REPEATABLE READ", "enqueue"), ("SERIALIZABLE", "completion")], ids=str
)
def test_a_period_since_the_snapshot(engine: Engine, connect: Connect, level: IsolationLevel, unique_from: str) -> None:
    """It fails to serialize, whether the message lives or has ended; tried again it finds a duplicate."""
    _enqueue(engine, key="other")
    for ended in (False, True):
        strict = connect(level)
        channel = f"{ended}"
        _enqueue(engine, channel=channel, key="warm")
        strict.exec_driver_sql("select count(*) from fq_message").all()
        first = _enqueue(engine, channel=channel, unique_from=unique_from)
        if ended:
            _done(engine)
        with pytest.raises(DBAPIError) as caught:
            _enqueue_at_once(strict, channel=channel, unique_from=unique_from)
        assert refusal_of(caught.value).sqlstate == _SERIALIZATION_FAILURE
        strict.rollback()
        assert _enqueue_at_once(strict, channel=channel, unique_from=unique_from) == first.message_id
        strict.commit()


def test_strict_transactions(engine: Engine, connect: Connect, clock: Clock) -> None:
    """Alone serializable ones add, find duplicates, take periods over that are over, and replace, as others do."""
    strict = connect("SERIALIZABLE")
    first = _enqueue_at_once(strict)
    strict.commit()
    assert _enqueue_at_once(strict, on_duplicate="replace") == first
    strict.commit()
    _done(engine)
    assert _enqueue_at_once(strict) == first
    strict.commit()
    clock.advance(HOUR)
    assert _enqueue_at_once(strict) > first
    strict.commit()


def test_housekeeping_waits_for_none(engine: Engine, connect: Connect, waits: Waits, clock: Clock) -> None:
    """It passes by a row that a transaction takes over; who meets its open deletion waits for that alone."""
    for key in ("k", "other"):
        _enqueue(engine, key=key)
    _done(engine)
    clock.advance(HOUR + SECOND)
    holder = connect()
    _enqueue_at_once(holder)

    def prune(rival: Engine) -> int:
        with rival.begin() as connection:
            return int(connection.exec_driver_sql("select deleted from fq_prune_expired(10)").scalar_one())

    assert waits.unhindered(prune) == 1
    holder.commit()
    _done(engine)
    for ends in ("commit", "rollback"):
        clock.advance(HOUR + SECOND)
        cleaning = connect()
        assert cleaning.exec_driver_sql("select deleted from fq_prune_expired(10)").scalar_one() == 1
        rival = waits.start(_enqueue).blocked()
        getattr(cleaning, ends)()
        assert rival.result().created
        _done(engine)


def test_two_phases(engine: Engine, connect: Connect, waits: Waits) -> None:
    """A prepared transaction holds the key as an open one does."""
    holder = connect()
    transaction = holder.begin_twophase("key period")
    message_id = _enqueue_at_once(holder)
    transaction.prepare()
    rival = waits.start(_enqueue).blocked()
    transaction.commit()
    assert rival.result().message_id == message_id
    assert _enqueue(engine).message_id == message_id


@pytest.mark.parametrize("level", ["READ COMMITTED", "SERIALIZABLE"])
def test_many_at_once(engine: Engine, database: Database, level: IsolationLevel) -> None:
    """Four producers enqueue batches of the same keys in random order, and end messages: each key is added once. Nobody
    fails but to serialize, and then tries again.
    """
    keys = [f"{number}" for number in range(40)]
    producing = engine.execution_options(isolation_level=level)

    def send(messages: list[Enqueue]) -> list[Receipt]:
        while True:
            try:
                with Session(producing) as session, session.begin():
                    return QUEUE.enqueue_many(session, messages)
            except DBAPIError as error:
                if level == "READ COMMITTED" or refusal_of(error).sqlstate != _SERIALIZATION_FAILURE:
                    raise

    def produce(seed: int) -> list[str]:
        random, added = Random(seed), list[str]()  # noqa: S311 - no secret
        for size in (1, 6) * 4:
            chosen = random.choices(keys, k=size)
            policies: list[OnDuplicate] = random.choices(("skip", "skip", "replace"), k=size)
            receipts = send(
                [
                    Enqueue(channel=f"c{int(key) % 3}", payload=1, key=key, unique_for=HOUR, on_duplicate=policy)
                    for key, policy in zip(chosen, policies, strict=True)
                ]
            )
            added += [key for key, one in zip(chosen, receipts, strict=True) if one.created]
            _done(engine)
        return added

    with ThreadPoolExecutor(4) as threads:
        added = [key for found in threads.map(produce, range(4)) for key in found]
    assert len(added) == len(set(added))
    assert sorted(added) == sorted(row[0] for row in database.rows("select key from fq_key_period"))
