"""Random programs on keys with and without a period, compared with a reference of a few lines."""

import os
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Enqueue, Queue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

MINUTE = timedelta(minutes=1)
_numbers = count(1)

_ENQUEUE = st.fixed_dictionaries(
    {
        "key": st.sampled_from("kl"),
        "on_duplicate": st.sampled_from(["skip", "skip", "replace"]),
        "period": st.sampled_from([None, 0, 10, 30]),
        "unique_from": st.sampled_from(["enqueue", "completion"]),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.lists(_ENQUEUE, min_size=1, max_size=3), st.sampled_from([True, True, False])),
        st.tuples(st.sampled_from(["take", "release", "purge", "prune", "cancel"]), st.integers(0, 3), st.booleans()),
        st.tuples(st.sampled_from(["complete", "bury"]), st.integers(0, 3), st.sampled_from([True, True, False])),
        st.tuples(st.just("wait"), st.sampled_from([3, 9, 31]), st.booleans()),
    ),
    min_size=15,
    max_size=30,
)


@dataclass
class Expected:
    """A message that lives: its key, unless it lost it, and its delivery while a consumer holds it."""

    key: str | None
    payload: int
    held: Delivery | None = None


@dataclass
class Reference:
    """Which message has which key, by the rules in words, without SQL. Times are in minutes.

    Attributes:
        living: Messages that have not ended, by id.
        periods: By key: the message, its minutes, and when they are over; None: not before it ends.
    """

    now: int = 0
    living: dict[int, Expected] = field(default_factory=dict)
    periods: dict[str, tuple[int, int, int | None]] = field(default_factory=dict)

    def answer(self, key: str, *, has_period: bool, replaces: bool) -> tuple[str, int | None]:
        """What becomes of an enqueue, and which message it meets."""
        holder = next((number for number, one in self.living.items() if one.key == key), None)
        if has_period and key in self.periods:
            owner, _, over = self.periods[key]
            if over is None or over > self.now:
                waits = owner == holder and self.living[owner].held is None
                return ("replaced" if replaces and waits else "duplicate"), owner
        if holder is None:
            return "created", None
        if not replaces:
            return "duplicate", holder
        return ("replaced", holder) if self.living[holder].held is None else ("created", holder)

    def enqueued(self, outcome: str, met: int | None, message_id: int, payload: int, words: dict[str, Any]) -> None:
        """It became that."""
        if outcome == "duplicate":
            return
        key, period = words["key"], words["period"]
        if outcome == "created":
            if met is not None:
                self.living[met].key = None
            self.living[message_id] = Expected(key, payload)
        else:
            self.living[message_id].payload = payload
        if period is not None:
            over = self.now + period if words["unique_from"] == "enqueue" else None
            self.periods[key] = message_id, period, over

    def end(self, message_id: int) -> None:
        """A message ends."""
        del self.living[message_id]
        for key, (owner, period, over) in self.periods.items():
            if owner == message_id and over is None:
                self.periods[key] = owner, period, self.now + period


class Program:
    """A random program, step by step."""

    def __init__(self, engine: Engine, database: Database, clock: Clock) -> None:
        self.engine, self.database, self.clock = engine, database, clock
        self.queue = Queue(f"documents {next(_numbers)}")
        self.reference = Reference()
        self.payloads = count(1)

    def enqueue(self, asked: list[dict[str, Any]], *, commits: bool) -> None:
        """A transaction enqueues one or several messages, and commits or rolls back."""
        payloads = [next(self.payloads) for _ in asked]
        messages = [
            Enqueue(
                channel="a",
                payload=payload,
                key=words["key"],
                on_duplicate=words["on_duplicate"],
                **_period(words),
            )
            for payload, words in zip(payloads, asked, strict=True)
        ]
        with Session(self.engine) as session:
            receipts = self.queue.enqueue_many(session, messages)
            if not commits:
                session.rollback()
                return
            session.commit()
        for receipt, payload, words in zip(receipts, payloads, asked, strict=True):
            replaces = words["on_duplicate"] == "replace"
            expected = self.reference.answer(words["key"], has_period=words["period"] is not None, replaces=replaces)
            assert receipt.message_id is not None
            assert receipt.outcome == expected[0]
            assert receipt.outcome == "created" or receipt.message_id == expected[1]
            self.reference.enqueued(*expected, receipt.message_id, payload, words)

    def held(self, number: int) -> tuple[int, Delivery] | None:
        """Some message that a consumer holds."""
        found = [(message_id, one.held) for message_id, one in self.reference.living.items() if one.held is not None]
        return found[number % len(found)] if found else None

    def settle(self, verb: str, number: int, *, commits: bool) -> None:
        """A consumer settles some message, in a transaction that commits or rolls back."""
        found = self.held(number)
        if found is None:
            return
        message_id, delivery = found
        with Session(self.engine) as session:
            getattr(self.queue, verb)(session, delivery, **({"reason": "bad"} if verb == "bury" else {}))
            if not commits:
                session.rollback()
                return
            session.commit()
        if verb == "release":
            self.reference.living[message_id].held = None
        else:
            self.reference.end(message_id)

    def step(self, what: str, value: Any, flag: bool) -> None:  # noqa: FBT001 - drawn
        """One step."""
        if what == "enqueue":
            self.enqueue(value, commits=flag)
        elif what in {"complete", "bury", "release"}:
            self.settle(what, value, commits=flag)
        elif what == "wait":
            self.clock.advance(value * MINUTE)
            self.reference.now += value
        elif what == "prune":
            self.database.execute(f"select deleted from fq_prune_expired({value + 1})")
        elif what == "take":
            self.take()
        else:
            self.withdraw(what, value)

    def take(self) -> None:
        """A consumer takes a message."""
        for delivery in self.queue.dequeue(self.engine, limit=1, lease=timedelta(days=300)):
            taken = self.reference.living[delivery.message_id]
            assert taken.payload == delivery.payload
            taken.held = delivery

    def withdraw(self, what: str, number: int) -> None:
        """All messages that wait are purged, or one message is cancelled."""
        living = self.reference.living
        if what == "purge":
            self.queue.purge(self.engine, "a")
            for message_id in [number for number, one in living.items() if one.held is None]:
                self.reference.end(message_id)
        elif living:
            message_id = sorted(living)[number % len(living)]
            self.queue.cancel(self.engine, message_id)
            if living[message_id].held is None:
                self.reference.end(message_id)
            else:
                living[message_id].key = None


def _period(words: dict[str, Any]) -> dict[str, Any]:
    if words["period"] is None:
        return {}
    # No minutes: over at once.
    least = timedelta(microseconds=1)
    return {"unique_for": max(words["period"] * MINUTE, least), "unique_from": words["unique_from"]}


@given(steps=STEPS)
@settings(
    max_examples=int(os.environ.get("FAIRQUEUE_KEY_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_programs(engine: Engine, database: Database, clock: Clock, steps: list[tuple[str, Any, bool]]) -> None:
    """Whatever is enqueued under two keys, alone and together, and however messages end: each enqueue meets the message
    that has the key by the rules in words.
    """
    program = Program(engine, database, clock)
    for step in steps:
        program.step(*step)
