"""Periods of keys whose message is replaced, moved or redriven."""

from functools import partial

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.queue.periods import HOUR, SECOND, complete_all, enqueue_key

_ROWS = "select count(*) from fq_key_period"


@pytest.mark.parametrize("unique_from", ["enqueue", "completion"])
def test_replace(queue: Queue, engine: Engine, clock: Clock, unique_from: str) -> None:
    """It rewrites a message that waits, and the period begins anew; one that is held or has ended stays alone."""
    replace = partial(enqueue_key, queue, engine, on_duplicate="replace", unique_from=unique_from)
    first = replace("first")
    clock.advance(HOUR / 2)
    second = replace("second")
    assert (second.outcome, second.message_id) == ("replaced", first.message_id)
    [delivery] = queue.dequeue(engine)
    assert delivery.payload == "second"
    held = replace("third")
    assert (held.outcome, held.message_id) == ("duplicate", first.message_id)
    queue.release(engine, delivery)
    assert replace("fourth").outcome == "replaced"
    complete_all(queue, engine)
    clock.advance(HOUR - SECOND)
    ended = replace("fifth")
    assert (ended.outcome, ended.message_id) == ("duplicate", first.message_id)
    assert queue.dequeue(engine) == []
    clock.advance(SECOND)
    assert replace("sixth").outcome == "created"


def test_replace_after_its_period(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A message whose period is over is replaced as one without: who is held gives the key up to the new one."""
    first = enqueue_key(queue, engine)
    [delivery] = queue.dequeue(engine, lease=12 * HOUR)
    clock.advance(HOUR)
    second = enqueue_key(queue, engine, on_duplicate="replace")
    assert (second.outcome, second.message_id != first.message_id) == ("created", True)
    queue.complete(engine, delivery)
    assert enqueue_key(queue, engine).message_id == second.message_id


def test_replace_changes_where_the_period_counts_from(queue: Queue, engine: Engine, clock: Clock) -> None:
    """The one that rewrites says how long and from when, also where the first had no period."""
    replace = partial(enqueue_key, queue, engine, on_duplicate="replace")
    first = replace(unique_for=None)
    assert replace(unique_from="completion").message_id == first.message_id
    complete_all(queue, engine)
    clock.advance(HOUR - SECOND)
    assert replace().message_id == first.message_id
    clock.advance(SECOND)
    third = replace(unique_from="completion")
    assert replace(unique_for=2 * HOUR).message_id == third.message_id
    clock.advance(HOUR)
    complete_all(queue, engine)
    clock.advance(HOUR - SECOND)
    assert replace().message_id == third.message_id
    clock.advance(SECOND)
    assert replace().created


def test_a_message_that_lost_its_key(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A message without a period takes the key from one that is held; the period stays, and ends in its own time."""
    first = enqueue_key(queue, engine, unique_from="completion")
    [delivery] = queue.dequeue(engine, lease=12 * HOUR)
    plain = enqueue_key(queue, engine, unique_for=None, on_duplicate="replace")
    assert plain.created
    complete_all(queue, engine)
    clock.advance(2 * HOUR)
    assert enqueue_key(queue, engine).message_id == first.message_id
    queue.complete(engine, delivery)
    clock.advance(HOUR - SECOND)
    assert enqueue_key(queue, engine).message_id == first.message_id
    clock.advance(SECOND)
    assert enqueue_key(queue, engine).created


def test_a_moved_message(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Its period stays in the channel where it was enqueued, and begins there when it ends in another."""
    first = enqueue_key(queue, engine, unique_from="completion")
    assert queue.move(engine, first.message_id or 0, "b") == "moved"
    clock.advance(2 * HOUR)
    assert enqueue_key(queue, engine).message_id == first.message_id
    complete_all(queue, engine)
    clock.advance(HOUR - SECOND)
    assert enqueue_key(queue, engine).message_id == first.message_id
    assert enqueue_key(queue, engine, channel="b").created
    clock.advance(SECOND)
    assert enqueue_key(queue, engine).created


def test_a_moved_message_is_replaced(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """A period that it gets in its new channel leaves the one that waits for its end in the first."""
    first = enqueue_key(queue, engine, unique_from="completion")
    assert queue.move(engine, first.message_id or 0, "b") == "moved"
    assert enqueue_key(queue, engine, channel="b", on_duplicate="replace").outcome == "replaced"
    complete_all(queue, engine)
    clock.advance(HOUR - SECOND)
    assert enqueue_key(queue, engine).message_id == first.message_id
    assert not enqueue_key(queue, engine, channel="b").created
    clock.advance(2 * SECOND)
    assert database.value("select fq_prune_keys(10)") == 2
    assert enqueue_key(queue, engine).created


def test_a_redriven_message(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A dead letter comes back within the period, which goes on from its first end."""
    first = enqueue_key(queue, engine, unique_from="completion")
    queue.bury(engine, queue.dequeue(engine), reason="poison")
    assert queue.redrive(engine) == {first.message_id: "redriven"}
    [delivery] = queue.dequeue(engine, lease=12 * HOUR)
    assert delivery.message_id == first.message_id
    clock.advance(HOUR)
    assert not enqueue_key(queue, engine).created
    queue.complete(engine, delivery)
    assert enqueue_key(queue, engine).created
