"""Random programs of plans beside a reference in plain Python: who is served, and which policy each channel has.

They stand beside the machine, whose programs have no plans.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue
from tests.fixtures.database import Database
from tests.model.mutations import Mutation

_CHANNELS = "abcdef"
_PLANS = ("free", "gold")
_LIMITS = (None, 1, 2, 4)
_HOUR = timedelta(hours=1)
_STEPS = 60


@dataclass
class _Books:
    """What was committed: the limit of each plan, the plan and the own limit of each channel, and who has what."""

    plans: dict[str, int | None] = field(default_factory=dict)
    follows: dict[str, str | None] = field(default_factory=dict)
    own: dict[str, int | None] = field(default_factory=dict)
    last: dict[str, int | None] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    held: list[Delivery] = field(default_factory=list)

    def limit(self, channel: str) -> int | None:
        """The limit that holds for a channel."""
        plan = self.follows.get(channel)
        if channel in self.own:
            return self.own[channel]
        return self.last.get(channel) if plan is None else self.plans[plan]

    def leave(self, channel: str) -> None:
        """The channel follows no plan: its values stay."""
        self.last[channel] = self.limit(channel)
        self.follows[channel] = None


def _run(engine: Engine, seed: int, fair_by: str) -> None:  # noqa: C901 - one case a step
    random, books, queue = Random(seed), _Books(), Queue("model")  # noqa: S311 - programs that repeat
    queue.configure(engine, fair_by=fair_by)  # type: ignore[call-overload]
    for plan in _PLANS:
        books.plans[plan] = random.choice(_LIMITS)
        queue.plans.configure(engine, plan, max_concurrency=books.plans[plan], weight=random.randint(1, 3))
    for _ in range(_STEPS):
        channel, plan, limit = random.choice(_CHANNELS), random.choice(_PLANS), random.choice(_LIMITS)
        match random.randrange(8):
            case 0:
                with Session(engine) as session:
                    queue.plans.configure(session, plan, max_concurrency=limit)
                    session.commit()
                books.plans[plan] = limit
            case 1:
                queue.configure_channel(engine, channel, plan=plan)
                books.follows[channel] = plan
            case 2:
                queue.configure_channel(engine, channel, max_concurrency=limit)
                books.own[channel] = limit
            case 3 if channel in books.own and books.follows.get(channel):
                queue.configure_channel(engine, channel, reset="all")
                del books.own[channel]
            case 4 if books.follows.get(channel):
                queue.configure_channel(engine, channel, plan=None)
                books.leave(channel)
            case 5:
                queue.complete(engine, [books.held.pop(random.randrange(len(books.held))) for _ in books.held[::2]])
            case 6:
                for name in random.choices(_CHANNELS, k=4):
                    queue.enqueue(engine, channel=name, payload=None)
                    books.waiting[name] += 1
            case _:
                _take(engine, queue, books, random.randint(1, 8))
    _take(engine, queue, books, 1000)
    assert {one.channel: one.max_concurrency for one in queue.channels(engine)} == {
        one.channel: books.limit(one.channel) for one in queue.channels(engine)
    }


def _take(engine: Engine, queue: Queue, books: _Books, limit: int) -> None:
    """One dequeue: nobody is served beyond the limit of now, and nobody whom it lets through is left out."""
    batch = queue.dequeue(engine, limit=limit, lease=_HOUR)
    books.held += batch
    out = Counter(one.channel for one in books.held)
    for channel, count in Counter(one.channel for one in batch).items():
        most = books.limit(channel)
        assert most is None or out[channel] <= most, f"channel {channel} has {out[channel]} out, its limit is {most}"
        books.waiting[channel] -= count
    if len(batch) < limit:
        for channel, count in books.waiting.items():
            most = books.limit(channel)
            assert not count or (most is not None and out[channel] >= most), f"channel {channel} was left out"


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
@pytest.mark.parametrize("seed", range(4))
def test_programs_of_plans(engine: Engine, seed: int, fair_by: str) -> None:
    """Limits of plans, of channels alone, and of none hold from each commit on, and free whom they let through."""
    _run(engine, seed, fair_by)


@pytest.mark.parametrize(
    "mistake",
    [
        Mutation("fq_follow_plans", "set slots = m.slots | 1", "set slots = m.slots"),
        *(
            pytest.param(Mutation(*one), marks=pytest.mark.whole)
            for one in (
                ("fq_follow_plans", "v_state.current_concurrency + count(*)", "v_state.current_concurrency"),
                ("fq_follow_plans", "p.policy - c.overridden) as state", "p.policy) as state"),
                ("fq_configure_channel", "v_plan.policy - v_followed.overridden", "v_plan.policy"),
                ("fq_configure_plan", "    spread_after = 0,\n", "    spread_after = null,\n"),
            )
        ),
    ],
)
def test_the_programs_notice_a_mistake(engine: Engine, database: Database, mistake: Mutation) -> None:
    """The programs find each of these mistakes in the SQL."""
    with database.own.connect() as connection:
        connection.exec_driver_sql(mistake.sql(), execution_options={"no_parameters": True})
    with pytest.raises(AssertionError):
        _run_all(engine, database)


def _run_all(engine: Engine, database: Database) -> None:
    tables = "fq_message, fq_channel, fq_channel_state, fq_channel_plan, fq_plan, fq_lease, fq_signal, fq_queue"
    for seed in range(8):
        database.execute(f"truncate {tables}, fq_queue_state")
        _run(engine, seed, "messages")
