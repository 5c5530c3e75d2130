"""Ordering keys while workers are killed and transactions roll back: one of a key at a time, in order, none lost."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue
from tests.chaos.books import Books
from tests.chaos.ordering import TABLE, main, payload, queue
from tests.fixtures.database import Database
from tests.fixtures.forks import Killed, killed
from tests.worker.helpers import is_empty, until

PROCESSES = 4
_CHANNELS = ("narrow", "wide", "other")
_KEYS = (*(f"key-{number}" for number in range(8)), None)
_CHUNK = 60
_CLAIMS = "select count(*) from claim"


@dataclass(slots=True)
class Chase:
    """A producer and an operator, and the processes that they have work done by.

    ``sent``: the numbers of the messages that were added, by their ids. ``gone``: those that were cancelled before
    anybody had them; ``told``: those that a consumer had then, which may end either way.
    """

    engine: Engine
    database: Database
    chance: random.Random
    processes: Killed
    sent: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    number: int = 0

    def send(self, *, keep: bool = True) -> None:
        """Add messages in one transaction, some with ordering keys, in the order of their numbers."""
        asked = []
        for number in range(self.number, self.number + _CHUNK):
            channel, key = self.chance.choice(_CHANNELS), self.chance.choice(_KEYS)
            named = None if key is None else f"{channel} {key}"
            content = payload(number, named, self.chance.choice((0, 0, 0, 0, 0, 0, 1, 2)))
            asked.append(Enqueue(channel=channel, kind="claims", payload=content, ordering_key=key))
        with Session(self.engine) as session:
            # Sent at once, so that there is something to roll back.
            receipts = queue.enqueue_many(session.connection(), asked)
            if not keep:
                session.rollback()
                return
            session.commit()
        for number, receipt in enumerate(receipts, self.number):
            assert receipt.message_id is not None
            self.sent[receipt.message_id] = number
        self.number += _CHUNK

    def cancel(self, count: int, *, keep: bool) -> None:
        """Withdraw some messages, wherever they are, while the processes go on; commit, or roll back."""
        waiting = [row.id for row in self.database.rows("select id from fq_message order by id")]
        asked = self.chance.sample(waiting, min(count, len(waiting)))
        with Session(self.engine) as session:
            receipts = [queue.cancel(session.connection(), message_id=one) for one in sorted(asked)]
            self.until_done(20)
            if not keep:
                session.rollback()
                return
            session.commit()
        for message_id, receipt in zip(sorted(asked), receipts, strict=True):
            if receipt.outcome == "cancelled":
                self.gone.add(self.sent[message_id])
            elif receipt.outcome == "leased":
                self.told.add(self.sent[message_id])

    def until_done(self, more: int) -> None:
        """Wait until so many messages more are handled, or nothing is left."""
        before = self.database.value(_CLAIMS)
        until(lambda: self.database.value(_CLAIMS) >= before + more or is_empty(self.database), "some are handled")

    def check(self) -> None:
        """Nothing is lost, handled twice, or handled after it was cancelled; each key had one at a time, in order."""
        done = {row.number for row in self.database.rows("select number from claim")}
        assert set(self.sent.values()) - done - self.told == self.gone
        assert done <= set(self.sent.values()) - self.gone
        rows = self.database.rows("select * from claim where ordering_key is not null order by ordering_key, ended")
        for key, claims in groupby(rows, lambda row: row.ordering_key):
            for first, second in pairwise(claims):
                assert first.number < second.number, f"{key}: {first.number} was handled before {second.number}"
                assert first.ended <= second.started, f"{key}: {first.number} and {second.number} at the same time"


@pytest.fixture
def chase(database: Database, engine: Engine) -> Iterator[Chase]:
    """Four processes at work."""
    database.execute(TABLE)
    queue.configure_channel(engine, "narrow", max_concurrency=3)
    with killed(database.url, PROCESSES, 3, main) as processes:
        yield Chase(engine, database, random.Random(3), processes)  # noqa: S311 - any order will do


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_killed_workers_keep_the_order_of_each_key(chase: Chase, kills: int) -> None:
    """Workers are killed, handlers fail, producers roll back and messages are cancelled, all the time."""
    books = Books(chase.database, chase.engine, queue)
    for step in range(kills):
        chase.send()
        chase.send(keep=False)
        chase.cancel(4, keep=step % 3 > 0)
        assert books.unbalanced() == []
        chase.processes.kill()
        chase.processes.start()
    books.until_done()
    assert books.unbalanced() == []
    chase.check()
    until(lambda: not books.left(), "all is heard")
