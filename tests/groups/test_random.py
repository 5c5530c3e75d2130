"""Random programs on groups, compared with a reference of a few lines."""

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Enqueue, Queue, Receipt
from sqlalchemy_fairqueue.testing import make_context
from tests.fixtures.database import Database
from tests.groups.conftest import counts
from tests.worker.helpers import expire_leases

pytestmark = pytest.mark.installed

HOUR = timedelta(hours=1)
_COUNTS = ("total", "done", "failed", "cancelled")
_numbers = count(1)

ROLLS_BACK = st.sampled_from([False, False, False, True])
OF_MEMBERS = (
    "complete", "bury", "cancel", "release", "retry", "add", "add and complete", "add and retry", "cancel and complete",
)  # fmt: skip
OF_ALL = ("fold", "purge", "redrive", "expire")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.integers(0, 3), st.booleans(), ROLLS_BACK),
        st.tuples(st.sampled_from(OF_MEMBERS), st.integers(0, 3), ROLLS_BACK, st.booleans()),
        st.tuples(st.sampled_from(OF_ALL), st.integers(1, 3), st.booleans(), st.booleans()),
        st.tuples(st.sampled_from(["cancel group", "move"]), st.integers(0, 20), st.booleans(), st.booleans()),
    ),
    min_size=20,
    max_size=40,
)


@dataclass
class Expected:
    """A group as it should be. pending: the ids of its members that have not ended."""

    has_alarm: bool
    total: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    pending: set[int] = field(default_factory=set)

    def end(self, message_id: int, how: str) -> None:
        """A member ends."""
        self.pending.remove(message_id)
        self.ended[how] += 1

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Total, done, failed, cancelled, pending."""
        return (
            self.total, self.ended["done"], self.ended["failed"], self.ended["cancelled"], len(self.pending),
        )  # fmt: skip

    @property
    def followup(self) -> str:
        """What follows it."""
        return "alarm" if self.has_alarm and self.ended["failed"] + self.ended["cancelled"] else "report"


class Program:
    """A random program, step by step."""

    def __init__(self, engine: Engine, database: Database, queue: Queue) -> None:
        self.engine, self.database, self.queue = engine, database, queue
        self.followed: Counter[str] = Counter()
        self.groups: dict[UUID, Expected] = {}
        self.of: dict[int, Expected] = {}
        self.out: dict[int, Delivery] = {}
        self.cancelled: set[int] = set()

    def make(self, size: int, *, has_alarm: bool, rolls_back: bool) -> None:
        """A transaction makes a group, with members, and commits or rolls back."""
        alarm = Enqueue(channel="reports", payload=0, kind="alarm") if has_alarm else None
        with Session(self.engine) as session:
            report = Enqueue(channel="reports", payload=0, kind="report")
            with self.queue.group(session, then=report, on_failure=alarm) as group:
                receipts = group.enqueue_many(Enqueue(channel="a", payload=each) for each in range(size))
            if rolls_back:
                session.rollback()
                return
            session.commit()
        self.groups[group.id] = found = Expected(has_alarm)
        self.joined(found, [receipt.message_id or 0 for receipt in receipts])

    def joined(self, group: Expected, ids: list[int]) -> None:
        """Members were added."""
        group.total += len(ids)
        group.pending |= set(ids)
        self.of |= dict.fromkeys(ids, group)

    def take(self, number: int) -> Delivery | None:
        """Some member that a consumer holds."""
        for delivery in self.queue.dequeue(self.engine, limit=400, lease=HOUR):
            if delivery.message_id in self.of and delivery.message_id in self.of[delivery.message_id].pending:
                self.out[delivery.message_id] = delivery
            else:
                self.queue.complete(self.engine, delivery)
                if delivery.channel == "reports":
                    assert delivery.headers is not None
                    group = self.groups[UUID(delivery.headers["after_group"]["id"])]
                    assert tuple(delivery.headers["after_group"][name] for name in _COUNTS) == group.counts[:4]
                    self.followed[delivery.kind] += 1
        return self.out[sorted(self.out)[number % len(self.out)]] if self.out else None

    def one(self, what: str, number: int, rolls_back: bool) -> None:  # noqa: FBT001 - drawn
        """The handler of a member does something, and its transaction commits or rolls back."""
        delivery = self.take(number)
        if delivery is None:
            return
        group, message_id = self.of[delivery.message_id], delivery.message_id
        is_cancelled = message_id in self.cancelled
        adds = what.startswith("add") and not is_cancelled
        with Session(self.engine) as session:
            receipts = self.handle(session, delivery, what, adds=adds)
            if rolls_back:
                session.rollback()
                return
            session.commit()
        if adds:
            self.joined(group, [receipt.message_id or 0 for receipt in receipts])
        if what.startswith("cancel"):
            self.cancelled.add(message_id)
        verb = what.rpartition(" ")[2]
        returns, end = verb in {"release", "retry"}, {"complete": "done", "bury": "failed"}.get(verb)
        if verb == "retry" and delivery.attempt >= delivery.max_attempts:
            end = "failed"
        if is_cancelled and (end or returns):
            end = "cancelled"
        if end:
            group.end(message_id, end)
        if end or returns:
            self.out.pop(message_id)

    def handle(self, session: Session, delivery: Delivery, what: str, *, adds: bool) -> list[Receipt]:
        """Do it; the receipts of members that were added."""
        queue, receipts = self.queue, list[Receipt]()
        if adds:
            found = make_context(delivery, queue=queue).with_session(session).group
            assert found is not None
            receipts = found.enqueue_many(Enqueue(channel="a", payload=each) for each in range(2))
        if what.startswith("cancel"):
            queue.cancel(session, delivery.message_id)
        words: dict[str, dict[str, Any]] = {"bury": {"reason": "bad"}, "retry": {"delay": timedelta()}}
        if (verb := what.rpartition(" ")[2]) in {"complete", "bury", "release", "retry"}:
            getattr(queue, verb)(session, delivery, **words.get(verb, {}))
        return receipts

    def expire(self) -> None:
        """All leases are over: members wait again, or are dead after their last attempt; cancelled ones have ended."""
        expire_leases(self.database)
        self.database.value("select fq_reclaim(:queue, 1000)", queue=self.queue.name)
        for message_id, delivery in self.out.items():
            if message_id in self.cancelled:
                self.of[message_id].end(message_id, "cancelled")
            elif delivery.attempt >= delivery.max_attempts:
                self.of[message_id].end(message_id, "failed")
        self.out.clear()

    def move(self, number: int) -> None:
        """Some member that nobody holds goes to another channel."""
        waiting = [one for one, group in self.of.items() if one in group.pending and one not in self.out]
        if waiting:
            moved = self.queue.admin.move(self.engine, waiting[number % len(waiting)], "b")
            assert moved in {"moved", "unchanged"}

    def purge(self) -> None:
        """All members that nobody holds are withdrawn."""
        for channel in ("a", "b"):
            self.queue.purge(self.engine, channel)
        for message_id, group in self.of.items():
            if message_id in group.pending and message_id not in self.out:
                group.end(message_id, "cancelled")

    def cancel_group(self, number: int) -> None:
        """All members of one group are withdrawn."""
        if not self.groups:
            return
        group_id = list(self.groups)[number % len(self.groups)]
        group = self.groups[group_id]
        held = {each for each in group.pending if each in self.out}
        newly = held - self.cancelled
        gone = group.pending - held
        assert self.queue.groups.cancel(self.engine, group_id) == (len(gone), len(newly))
        self.cancelled |= held
        for message_id in gone:
            group.end(message_id, "cancelled")

    def step(self, what: str, number: int, first: bool, second: bool) -> None:  # noqa: FBT001 - drawn
        """One step, and the comparison."""
        if what == "make":
            self.make(number, has_alarm=first, rolls_back=second)
        elif what in {"purge", "expire"}:
            getattr(self, what)()
        elif what in {"move", "cancel group"}:
            (self.move if what == "move" else self.cancel_group)(number)
        elif what == "redrive":
            self.queue.dead_letters.redrive(self.engine)
        elif what == "fold":
            self.database.rows(f"select * from fq_fold_groups({number}, 100, false)")
        else:
            self.one(what, number, first)
        self.compare()

    def compare(self) -> None:
        """Counts are exact; no group with pending members is followed."""
        for group_id, group in self.groups.items():
            status = self.queue.groups.status(self.engine, group_id)
            assert counts(status) == group.counts
            assert status.finished_at is None or not group.pending

    def finish(self) -> None:
        """When all is folded, each group without pending members was followed once, by the right message."""
        while self.database.rows("select from fq_fold_groups(100, 100, false) where more"):
            pass
        self.take(0)
        self.compare()
        assert self.followed == Counter(group.followup for group in self.groups.values() if not group.pending)


@given(steps=STEPS)
@settings(
    max_examples=int(os.environ.get("FAIRQUEUE_GROUP_EXAMPLES", "8")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_programs(engine: Engine, database: Database, steps: list[tuple[str, int, bool, bool]]) -> None:
    """Whatever members do, together and in turn, in transactions that commit and roll back: counts are exact after each
    step, and each group is followed once, after its last member, by the right message.
    """
    program = Program(engine, database, Queue(f"documents {next(_numbers)}", max_attempts=3))
    program.make(3, has_alarm=False, rolls_back=False)
    for step in steps:
        program.step(*step)
    program.finish()
