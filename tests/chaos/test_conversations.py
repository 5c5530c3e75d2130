"""What a chat service does: tenants, conversations in order, batches by tokens, and workers that die."""

import random
from dataclasses import dataclass
from itertools import groupby, pairwise

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from tests.chaos.books import Books
from tests.chaos.conversations import BATCH, TABLES, Said, answer, main, main_in_loop, queue
from tests.fixtures.database import Database
from tests.fixtures.forks import killed

PROCESSES = 4
_TENANTS = ("large", "large", "large", "small", "tiny")
_CHUNK = 100
_SAID = text("insert into said values (:number)")


@dataclass(slots=True)
class Service:
    """Those who say something."""

    books: Books
    chance: random.Random
    said: int = 0

    def say(self, *, keep: bool = True) -> None:
        """Say something in conversations, with its messages in one transaction, in the order of their numbers."""
        with Session(self.books.engine) as session:
            for number in range(self.said, self.said + _CHUNK):
                tenant = self.chance.choice(_TENANTS)
                conversation = f"{tenant} {self.chance.randrange(4)}"
                said = Said(number, conversation, self.chance.randint(1, 40), self.chance.choice((0,) * 19 + (1,)))
                session.execute(_SAID, {"number": number})
                options = answer.options(ordering_key=conversation, cost=said.tokens)
                options.enqueue(session, tenant, said)
            if not keep:
                session.rollback()
                return
            session.commit()
        self.said += _CHUNK

    def check(self) -> None:
        """Each message was answered once, in the order of its conversation, which was in one call at a time; what had
        failed or was lost with its worker came alone.
        """
        database = self.books.database
        assert database.value("select count(*) from fq_dead_letter") == 0
        rows = database.rows("select * from answer order by conversation, started, place")
        assert sorted(row.number for row in rows) == list(range(self.said))
        assert database.value("select count(*) from said") == self.said
        for conversation, answers in groupby(rows, lambda row: row.conversation):
            for first, second in pairwise(answers):
                assert first.number < second.number, f"{conversation}: {first.number} after {second.number}"
                assert first.call == second.call or first.ended <= second.started, f"{conversation}: two at a time"
        calls = [list(answers) for _, answers in groupby(rows, lambda row: row.call)]
        assert len({row.call for row in rows}) == len(calls)
        together = [answers for answers in calls if len(answers) > 1]
        assert together
        assert max(sum(row.tokens for row in answers) for answers in together) <= BATCH.max_cost
        assert {row.attempt for answers in together for row in answers} == {1}
        assert {row.attempt for row in rows} > {1}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.soak)])
def test_conversations_are_answered_in_order(database: Database, engine: Engine, kills: int) -> None:
    """Workers, of which every other one has a loop, are killed, answers fail, and senders roll back, all the time."""
    for statement in TABLES.split(";"):
        database.execute(statement)
    queue.configure_channel(engine, "small", max_concurrency=2)
    service = Service(Books(database, engine, queue), random.Random(3))  # noqa: S311 - any order will do

    def work(_: int) -> None:
        service.say()
        service.say(keep=False)
        service.books.until_more("answer", _CHUNK // 2)

    with killed(database.url, PROCESSES, 3, main_in_loop, main) as processes:
        service.books.survive(kills, processes, work)
    service.check()
