"""The capacity that a history shows, and replays by as many workers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.reporting.simulation.replay import (
    Capacity,
    capacity_of,
    replay_queue,
    simulated_attempts,
    trace_of,
)
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario, as_recorded
from sqlalchemy_fairqueue.reporting.simulation.simulator import simulate
from sqlalchemy_fairqueue.reporting.simulation.state import compiled
from tests.reporting.simulation.replay_programs import START, row

SERVICE = 1000


# The compiler takes longer than all of the folder.
@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.whole)], ids=["interpreted", "compiled"])
def compile_(request: pytest.FixtureRequest) -> bool:
    """Whether Numba compiles the simulator."""
    if request.param and compiled(simulate) is None:
        pytest.skip("numba is not installed")
    return bool(request.param)


def backlog(slots: Sequence[int], *, rounds: int = 40, gap: int = 0) -> list[dict[str, Any]]:
    """Messages that all come at once; each slot begins one at its time, and another *gap* after each end."""
    rows: list[dict[str, Any]] = []
    for slot in slots:
        for number in range(rounds):
            begin = slot + number * (SERVICE + gap)
            rows.append(row(len(rows) + 1, 0, begin, begin + SERVICE))
    return rows


def capacity(rows: Sequence[Mapping[str, Any]], **policies: ChannelPolicy) -> Capacity:
    """The capacity that these attempts show."""
    return capacity_of(trace_of(pa.Table.from_pylist([dict(one) for one in rows])), policies)


def test_as_many_as_worked() -> None:
    """While there is enough to do, four that always have a message are four. Four that pause a quarter of their time
    between messages are three.
    """
    found = capacity(backlog([0, 250, 500, 750]))

    assert found.workers == pytest.approx(4, rel=0.02)
    assert found.backlogged > 30 * SERVICE
    assert found.least == pytest.approx(found.greatest, rel=0.05)
    assert capacity(backlog([0, 250, 500, 750], gap=SERVICE // 3)).workers == pytest.approx(3, rel=0.05)


def test_a_moment_of_more_does_not_count() -> None:
    """Messages that were prefetched in one moment are a peak, and no workers."""
    rows = backlog([0, 250])
    rows += [row(len(rows) + number, 0, 5000, 5000 + SERVICE) for number in range(1, 10)]

    assert capacity(rows).workers == pytest.approx(2, rel=0.2)


@pytest.mark.parametrize("outcome", ["expired", "released"])
def test_what_nobody_handled_does_not_count(outcome: str) -> None:
    """Messages that a killed worker held until their lease ended, or that a worker gave back, took no worker."""
    rows = backlog([0, 500])
    idle = [row(len(rows) + number, 0, 0, 20 * SERVICE, outcome=outcome) for number in range(1, 10)]

    assert capacity(rows + idle).workers == pytest.approx(capacity(rows).workers, rel=0.05)


def test_a_wait_for_a_dequeue_is_no_backlog() -> None:
    """Without a shortage the capacity is not measured: it is what was handled at once, although messages waited."""
    rows = [row(number, 5000 * number, 5000 * number + 900, 5000 * number + 1900) for number in range(1, 50)]

    assert capacity(rows) == Capacity(1, 0, 1, 1)


def test_a_wait_for_a_limit_is_no_backlog() -> None:
    """A channel at its limit waits for that, and one with a rate may; both alone show no shortage of workers."""
    rows = backlog([0, 500])
    limited = backlog([0], rounds=200)
    for number, one in enumerate(limited, len(rows) + 1):
        one.update(id=number, message_id=number, channel_id=10_000, channel="limited")

    policies = {"limited": ChannelPolicy(max_concurrency=1)}
    assert capacity(rows + limited, **policies).backlogged < 40 * SERVICE < capacity(rows + limited).backlogged
    assert capacity(limited).backlogged > 0
    assert capacity(limited, **policies).backlogged == 0
    assert capacity(limited, limited=ChannelPolicy(rate="1/s")).backlogged == 0


def test_a_change_is_seen() -> None:
    """The quarters of the backlogged time tell that workers went."""
    found = capacity(backlog([0, 500], rounds=40) + [
        one | {"id": 1000 + one["id"], "message_id": 1000 + one["id"], "channel_id": 1000 + one["id"]}
        for one in backlog([250, 750], rounds=15)
    ])  # fmt: skip

    assert found.least == pytest.approx(2, rel=0.1)
    assert found.greatest == pytest.approx(4, rel=0.1)


def test_a_part_of_a_worker_pauses(*, compile_: bool) -> None:
    """Two and a half workers take as long for the work as two and a half would: three, each busy five sixths."""
    trace = trace_of(pa.Table.from_pylist(backlog([0], rounds=300)))

    attempts = simulated_attempts(trace, Scenario(name="x", workers=2.5), compile_=compile_)

    took = int(attempts["finished"].max() - attempts["started"].min())
    assert took == pytest.approx(300 * SERVICE / 2.5, rel=0.01)
    assert set((attempts["finished"] - attempts["started"]).tolist()) == {SERVICE}
    assert set(attempts["worker"].tolist()) == {0, 1, 2}


def test_what_nobody_handled_takes_no_worker(*, compile_: bool) -> None:
    """A message whose lease expired is out as long as it was. Its worker handles others meanwhile, also one that came
    in the same batch.
    """
    rows = [row(1, 0, 0, 500, outcome="expired"), row(1, 0, 500, 600, ready=500, attempt=2, id=9)]
    rows += [row(2, 0, 0, 100), row(3, 5, 100, 200), row(4, 5, 200, 300, outcome="released")]
    trace = trace_of(pa.Table.from_pylist(rows))

    for batch in (1, 2):
        attempts = simulated_attempts(trace, Scenario(name="x", workers=1, batch=batch), compile_=compile_)
        times = [(int(one["started"]) - START, int(one["finished"]) - START) for one in attempts]
        # The released one is taken with or behind the third message, and ends as soon as it would alone.
        fourth = (100, 200) if batch == 2 else (200, 300)
        assert times == [(0, 500), (500, 600), (0, 100), (100, 200), fourth]


def test_the_default_is_the_capacity() -> None:
    """A scenario that names no workers has those of the record, so that what was takes as long as it took."""
    rows = backlog([0, 250, 500, 750], gap=SERVICE // 3)
    history = pa.Table.from_pylist(rows)

    replayed = replay_queue(history, as_recorded({}))

    finished = [replayed["finished_at"].cast(pa.int64()).to_numpy(), [one["finished_at"] for one in rows]]
    again, was = (int(np.max(one)) - START for one in finished)
    assert again == pytest.approx(was, rel=0.05)


def test_recorded_policies_are_of_one_channel_each() -> None:
    """A channel whose name looks like a pattern has its policy alone."""
    one, other = ChannelPolicy(weight=2), ChannelPolicy(weight=3)
    scenario = as_recorded({"a*": one, "a[b]": other})

    names = ["a*", "ab", "a[b]", "a"]
    assert {names[n]: policy.weight for policy, ns in scenario.policies_of(names) for n in ns} == {
        "a*": 2, "ab": 1, "a[b]": 3, "a": 1,
    }  # fmt: skip
