"""Books of what was sent and done: nothing lost, effects counted once, limits kept, no slot left."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from tests.chaos.business import KEPT, PLAIN, payload
from tests.fixtures.database import Database
from tests.fixtures.forks import Killed
from tests.model.invariants import HELD, LEFT
from tests.worker.helpers import is_empty, until

QUEUE = "documents"


def _here(statement: str) -> str:
    """A statement of the model, asked of this queue.

    The model's clock stands still between its steps; here time goes on, and what counts is later than the snapshot.
    """
    return statement.replace("(select last_value from public.test_clock)", "(select fq_now())").replace(
        "'model'", f"'{QUEUE}'"
    )


_HELD, _LEFT = _here(HELD), _here(LEFT)


@dataclass(frozen=True, slots=True)
class Books:
    """The business's own account of a queue.

    Attributes:
        database: Where it is.
        engine: For what it sends.
        queue: Where it sends to.
    """

    database: Database
    engine: Engine
    queue: Queue

    def send(self, number: int, *channels: str, seconds: float = 0.0) -> None:
        """Send so many messages of each kind, taking channels in turn, in one transaction with their entries."""
        names = channels or ("narrow", "wide")
        with Session(self.engine) as session, session.begin():
            first = session.scalar(text("select count(*) from sent")) or 0
            for ordinal in range(2 * number):
                kind = (KEPT, PLAIN)[ordinal % 2]
                self.send_in(session, first + ordinal, kind, names[ordinal // 2 % len(names)], seconds=seconds)

    def get_under_way(self, number: int, *channels: str, seconds: float, more: int = 5) -> None:
        """Send so many, and return when some more have had their effect."""
        before = len(self.effects())
        self.send(number, *channels, seconds=seconds)
        until(lambda: len(self.effects()) > before + more, "work is under way")

    def send_in(self, session: Session, number: int, kind: str, channel: str, **how: float) -> None:
        """Send one message in the session's transaction, with its entry."""
        session.execute(text("insert into sent values (:number, :kind)"), {"number": number, "kind": kind})
        self.queue.enqueue_many(session, [Enqueue(channel=channel, kind=kind, payload=payload(number, **how))])  # type: ignore[arg-type]

    def until_done(self) -> None:
        """Wait until no message is left."""
        __tracebackhide__ = True
        until(lambda: is_empty(self.database), "all messages are done")

    def until_more(self, table: str, count: int) -> None:
        """Wait until a table has so many rows more, or no message is left."""
        sql = f"select count(*) from {table}"
        enough = self.database.value(sql) + count
        until(lambda: self.database.value(sql) >= enough or is_empty(self.database), "some are handled")

    def survive(self, kills: int, processes: Killed, work: Callable[[int], None]) -> None:
        """Kill a process after each step of the work, and wait until all is done; sums come out in every snapshot."""
        for step in range(kills):
            work(step)
            assert self.unbalanced() == []
            processes.kill()
            processes.start()
        self.until_done()
        assert self.unbalanced() == []
        until(lambda: not self.left(), "all is heard")

    def check(self) -> None:
        """All was done: KEPT exactly once, PLAIN at least once; nothing is dead, no slot is held, the sums come out."""
        __tracebackhide__ = True
        left: list[str] = []

        def nothing_left() -> bool:
            left[:] = self.left()
            return not left

        # What a worker's call under way has locked, it puts in order itself.
        until(nothing_left, left)
        dead = [f"message {row[0]} is dead" for row in self.database.rows("select message_id from fq_dead_letter")]
        found = dead + self.miscounted() + self.unbalanced()
        if found:
            pytest.fail("\n".join(found))

    def terminate(self, name: str, most: int) -> None:
        """Terminate some of the connections whose names are like this."""
        self.database.execute(
            "select pg_terminate_backend(pid) from (select pid from pg_stat_activity where datname = current_database()"
            " and application_name like :name order by random() limit :most) victims",
            name=name,
            most=most,
        )

    def effects(self) -> "Counter[int]":
        """How often each message had its effect."""
        return Counter(row.number for row in self.database.rows("select number from effect"))

    def miscounted(self) -> list[str]:
        """A line for each message that was lost, or whose effect was counted more than once."""
        rows = self.database.rows(
            "select s.number, s.kind, count(e.number) as times from sent s left join effect e using (number)"
            " group by s.number having count(e.number) < 1 or (s.kind = 'kept' and count(e.number) > 1)"
        )
        stray = self.database.rows("select number from effect except select number from sent")
        return [f"{row.kind} message {row.number}: {row.times} times" for row in rows] + [
            f"message {row.number} was never sent" for row in stray
        ]

    def unbalanced(self) -> list[str]:
        """A line for whatever must hold in every snapshot and does not."""
        return [row[0] for row in self.database.rows(_HELD)]

    def left(self) -> list[str]:
        """A line for whatever an empty queue still holds: slots, signals, entries in the ready order."""
        self.queue.dequeue(self.engine)
        # A lease that a dead worker waited under ends by itself.
        return [row[0] for row in self.database.rows(_LEFT) if "lease" not in row[0]]

    def crowded(self, limits: dict[str, int], together: int) -> list[str]:
        """A line for each moment at which more handlers were at work than a limit allows."""
        lines = []
        rows = self.database.rows("select channel, started, ended from effect where sure")
        for channel, most in [*limits.items(), (None, together)]:
            moments = [
                moment
                for row in rows
                if channel is None or row.channel == channel
                for moment in ((row.started, 1), (row.ended, -1))
            ]
            at_work = 0
            # Of the same microsecond the end comes first.
            for at, step in sorted(moments):
                at_work += step
                if at_work > most:
                    lines.append(f"{at_work} handlers of {channel or 'the queue'} at {at}, the limit is {most}")
        return lines
