"""Ordering keys while workers are killed and transactions roll back: one of a key at a time, in order, none lost."""

import random
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue
from tests.chaos.books import Books
from tests.chaos.ordering import TABLE, main, payload, queue
from tests.fixtures.database import Database
from tests.fixtures.forks import killed

PROCESSES = 4
_CHANNELS = ("narrow", "wide", "other")
_KEYS = (*(f"key-{number}" for number in range(8)), None)
_CHUNK = 60


@dataclass(slots=True)
class Chase:
    """A producer and an operator.

    ``sent``: the numbers of the messages that were added, by their ids. ``gone``: those that were cancelled before
    anybody had them; ``told``: those that a consumer had then, which may end either way.
    """

    books: Books
    chance: random.Random
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
        with Session(self.books.engine) as session:
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
        waiting = [row.id for row in self.books.database.rows("select id from fq_message order by id")]
        asked = self.chance.sample(waiting, min(count, len(waiting)))
        with Session(self.books.engine) as session:
            receipts = [queue.cancel(session.connection(), message_id=one) for one in sorted(asked)]
            self.books.until_more("claim", 20)
            if not keep:
                session.rollback()
                return
            session.commit()
        for message_id, receipt in zip(sorted(asked), receipts, strict=True):
            if receipt.outcome == "cancelled":
                self.gone.add(self.sent[message_id])
            elif receipt.outcome == "leased":
                self.told.add(self.sent[message_id])

    def check(self) -> None:
        """Nothing is lost, handled twice, or handled after it was cancelled; each key had one at a time, in order."""
        claims = self.books.database.rows("select * from claim order by ordering_key, ended")
        done = {row.number for row in claims}
        assert set(self.sent.values()) - done - self.told == self.gone
        assert done <= set(self.sent.values()) - self.gone
        keyed = (row for row in claims if row.ordering_key is not None)
        for key, rows in groupby(keyed, lambda row: row.ordering_key):
            for first, second in pairwise(rows):
                assert first.number < second.number, f"{key}: {first.number} was handled before {second.number}"
                assert first.ended <= second.started, f"{key}: {first.number} and {second.number} at the same time"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_killed_workers_keep_the_order_of_each_key(database: Database, engine: Engine, kills: int) -> None:
    """Workers are killed, handlers fail, producers roll back and messages are cancelled, all the time."""
    database.execute(TABLE)
    queue.configure_channel(engine, "narrow", max_concurrency=3)
    chase = Chase(Books(database, engine, queue), random.Random(3))  # noqa: S311 - any order will do

    def work(step: int) -> None:
        chase.send()
        chase.send(keep=False)
        chase.cancel(4, keep=step % 3 > 0)

    with killed(database.url, PROCESSES, 3, main) as processes:
        chase.books.survive(kills, processes, work)
    chase.check()
