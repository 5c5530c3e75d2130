"""Costs: declared at the enqueue, corrected by the verbs that settle, and what a queue shares by."""

from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, InvalidArgument, Queue
from tests.fixtures.database import Database

_COSTS = "select cost from fq_message order by id"
_TAG = "select (max(tag) + 9000000000000000000) / 2520 from fq_channel_state"


def _corrections(database: Database) -> list[int]:
    found = database.rows("select cost from fq_signal where cost is not null order by id")
    return [row[0] for row in found]


def test_costs_are_kept_with_messages(queue: Queue, engine: Engine, database: Database) -> None:
    """However they are enqueued: recorded, in bulk, at once. A cost of 1 needs no room."""
    with Session(engine) as session, session.begin():
        queue.enqueue(session, channel="a", payload=1, cost=7)
        queue.enqueue_many(session, [Enqueue(channel="a", payload=1, cost=cost) for cost in (1, 3)])
        queue.enqueue_many(session, [Enqueue(channel="a", payload=1) for _ in range(2)])
    queue.enqueue_now(engine, channel="a", payload=1, cost=10**9)
    found = sorted(row[0] or 1 for row in database.rows(_COSTS))
    assert found == [1, 1, 1, 3, 7, 10**9]
    assert [row[0] for row in database.rows(_COSTS)].count(None) == 3


def test_replacing_replaces_the_cost(queue: Queue, engine: Engine, database: Database) -> None:
    """The cost is the new message's."""
    for cost in (7, 9):
        queue.enqueue_now(engine, channel="a", payload=1, key="k", on_duplicate="replace", cost=cost)
    assert database.rows(_COSTS) == [(9,)]


@pytest.mark.parametrize("cost", [0, -1, 10**9 + 1, 1.5, "3", None])
def test_bad_costs_are_refused(queue: Queue, engine: Engine, cost: Any) -> None:
    """Before anything is recorded, with the value."""
    with pytest.raises(InvalidArgument, match="cost"):
        Enqueue(channel="a", payload=1, cost=cost)
    if cost not in {0, None}:
        for verb in (queue.complete, queue.retry, queue.bury):
            with pytest.raises(InvalidArgument, match="cost"):
                verb(engine, [], cost=cost)


@pytest.mark.parametrize("verb", ["complete", "retry", "bury"])
@pytest.mark.parametrize("where", ["engine", "session"])
def test_verbs_correct_costs(queue: Queue, engine: Engine, database: Database, verb: str, where: str) -> None:
    """The channel is told the difference, in the transaction that settles; without a cost nothing."""
    queue.configure(engine, fair_by="cost")
    for cost in (10, 20, 30):
        queue.enqueue_now(engine, channel="a", payload=1, cost=cost)
    one, two, three = queue.dequeue(engine, limit=3)
    settle = getattr(queue, verb)
    if where == "engine":
        settle(engine, [one, two], cost=25)
        settle(engine, three)
    else:
        with Session(engine) as session, session.begin():
            settle(session, [one, two], cost=25)
            settle(session, three)
            assert _corrections(database) == []
    assert _corrections(database) == [20]
    queue.dequeue(engine)
    assert int(database.rows(_TAG)[0][0]) >= 80


async def test_verbs_correct_costs_awaited(queue: Queue, async_engine: AsyncEngine, database: Database) -> None:
    """The awaited twins, too."""
    await queue.aconfigure(async_engine, fair_by="cost")
    for verb in ("acomplete", "aretry", "abury"):
        await queue.aenqueue_now(async_engine, channel="a", payload=1, cost=10)
        [delivery] = await queue.adequeue(async_engine)
        await getattr(queue, verb)(async_engine, delivery, cost=4)
        assert _corrections(database)[-1] == -6


def test_a_lost_delivery_corrects_nothing(queue: Queue, engine: Engine, database: Database) -> None:
    """A settlement is sent again when its answer was lost: the cost counts once."""
    queue.configure(engine, fair_by="cost")
    queue.enqueue_now(engine, channel="a", payload=1)
    [delivery] = queue.dequeue(engine)
    queue.complete(engine, delivery, cost=9)
    assert _corrections(database) == [8]
    with pytest.raises(Exception, match="lost"):
        queue.complete(engine, delivery, cost=9)
    assert _corrections(database) == [8]


def test_messages_are_what_counts_at_first(queue: Queue, engine: Engine, database: Database) -> None:
    """A queue that was not configured is fair by messages: costs have no effect, and nobody is told of them."""
    queue.enqueue_now(engine, channel="a", payload=1, cost=50)
    [delivery] = queue.dequeue(engine)
    queue.complete(engine, delivery, cost=9)
    assert _corrections(database) == []
    assert database.rows("select tag from fq_channel_state") == [(None,)]


@pytest.mark.parametrize("fair_by", ["weight", "", 3, "COST"])
def test_a_bad_word_is_refused(queue: Queue, engine: Engine, fair_by: Any) -> None:
    """It names the value and what it may be."""
    with pytest.raises(InvalidArgument, match="fair_by"):
        queue.configure(engine, fair_by=fair_by)
