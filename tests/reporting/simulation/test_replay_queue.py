"""Inputs that a replay takes from a history, and the course that it computes from them, without a cluster."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.simulation.replay import SCHEMA, replay_queue
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario, check_scenarios
from sqlalchemy_fairqueue.values.messages import FairBy
from tests.reporting.simulation.replay_programs import START


def row(message: int, enqueued: int, started: int, finished: int, **more: Any) -> dict[str, Any]:
    """An attempt in a channel of its own, times counted from START."""
    return {
        "id": message,
        "queue": "q",
        "channel_id": message,
        "channel": f"tenant-{message}",
        "message_id": message,
        "kind": "work",
        "attempt": 1,
        "enqueued_at": START + enqueued,
        "ready_at": START + more.pop("ready", enqueued),
        "started_at": START + started,
        "finished_at": START + finished,
        "outcome": "completed",
        **more,
    }


def course(history: pa.Table, scenario: Scenario) -> list[tuple[int, int, int]]:
    """Message, start and end of each attempt in the order in which they end, counted from START."""
    played = replay_queue(history, scenario).sort_by("id")
    started, finished = (played[name].cast(pa.int64()).to_numpy() - START for name in ("started_at", "finished_at"))
    return list(zip(played["message_id"].to_pylist(), started.tolist(), finished.tolist(), strict=True))


def test_workers() -> None:
    """Half the workers of the record take twice as long; as many as there were do as they did."""
    history = pa.Table.from_pylist([row(1, 0, 0, 100), row(2, 0, 0, 100), row(3, 0, 100, 200), row(4, 0, 100, 200)])

    assert course(history, Scenario(name="as many")) == [(1, 0, 100), (2, 0, 100), (3, 100, 200), (4, 100, 200)]
    assert course(history, Scenario(name="one", workers=1)) == [
        (1, 0, 100),
        (2, 100, 200),
        (3, 200, 300),
        (4, 300, 400),
    ]


def test_begin() -> None:
    """Nothing begins before the first attempt of the record did: there were no workers."""
    history = pa.Table.from_pylist([row(1, 0, 500, 600), row(2, 0, 600, 700)])

    assert course(history, Scenario(name="two", workers=2)) == [(1, 500, 600), (2, 500, 600)]


def test_next_attempt() -> None:
    """The next attempt of a message follows the end of the one before by the delay that it had."""
    history = pa.Table.from_pylist(
        [
            row(1, 0, 50, 60, outcome="retried"),
            row(1, 0, 90, 95, ready=80, attempt=2, id=2),
        ]
    )

    assert course(history, Scenario(name="x")) == [(1, 50, 60), (1, 80, 85)]


def test_earlier_attempts_are_missing() -> None:
    """A message whose earlier attempts are not in the history comes when it became ready again."""
    history = pa.Table.from_pylist([row(1, 0, 10, 20), row(2, 5, 90, 95, ready=80, attempt=3)])

    assert course(history, Scenario(name="x")) == [(1, 10, 20), (2, 80, 85)]


def test_clock_set_back() -> None:
    """An attempt that ended before it began took no time."""
    history = pa.Table.from_pylist([row(1, 0, 10, 5)])

    assert course(history, Scenario(name="x")) == [(1, 10, 10)]


def test_history() -> None:
    """What comes back is a history: attempts with times, workers and order of the replay, all else as it was."""
    history = pa.Table.from_pylist([row(8, 0, 0, 10, outcome="buried"), row(7, 0, 0, 30, kind="mail")])

    played = replay_queue(history, Scenario(name="x", workers=1))

    assert played.schema == SCHEMA
    rows = sorted(played.to_pylist(), key=lambda one: one["id"])
    kept = ("scenario", "queue", "channel", "message_id", "kind", "consumer", "attempt", "outcome", "error")
    assert [tuple(one[name] for name in kept) for one in rows] == [
        ("x", "q", "tenant-7", 7, "mail", "worker 1", 1, "completed", None),
        ("x", "q", "tenant-8", 8, "work", "worker 1", 1, "buried", None),
    ]


def test_policies() -> None:
    """A channel's own name comes before patterns, the first pattern that fits before others, defaults last."""
    limits = {"big*": 1, "big-one": 2, "*-one": 3, "odd[": 4}
    scenario = Scenario(
        name="x",
        defaults=ChannelPolicy(max_concurrency=9),
        policies={name: ChannelPolicy(max_concurrency=limit) for name, limit in limits.items()},
    )
    names = ["big-two", "big-one", "little-one", "small", "odd[", "Big-two"]

    found = {names[n]: policy.max_concurrency for policy, ns in scenario.policies_of(names) for n in ns}

    assert found == {"big-two": 1, "big-one": 2, "little-one": 3, "small": 9, "odd[": 4, "Big-two": 9}


def test_row_twice() -> None:
    """A row that is there twice is refused, rather than done twice."""
    history = pa.Table.from_pylist([row(1, 0, 0, 10), row(2, 0, 0, 10), row(2, 0, 0, 10)])

    with pytest.raises(InvalidArgument, match="row 2 of the history of queue 'q' is there more than once"):
        replay_queue(history, Scenario(name="x"))


def test_several_databases() -> None:
    """A message that is in two channels comes from two databases."""
    history = pa.Table.from_pylist([row(1, 0, 0, 10), row(1, 0, 0, 10, id=2, channel_id=2, channel="other")])

    with pytest.raises(InvalidArgument, match="message 1 of queue 'q' is in channel 'tenant-1' and in channel 'other'"):
        replay_queue(history, Scenario(name="x"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": ""}, "name '' has 0 bytes"),
        ({"name": "as recorded"}, "called 'as recorded'"),
        ({"discipline": "lifo"}, "discipline is 'lifo'"),
        ({"fair_by": "pages"}, "fair_by is 'pages'"),
        ({"fair_by": "cost", "discipline": "fifo"}, "is first come, first served and fair by cost; leave one"),
        ({"workers": 0}, "workers is 0; give a number from 0.01"),
        ({"workers": "3"}, "workers is '3'; give a number"),
        ({"batch": 0}, "batch is 0"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"defaults": 3}, "defaults of scenario 'x' is 3"),
        ({"policies": {"a*": None}}, r"policies\['a\*'\] of scenario 'x' is None"),
        ({"policies": {"a": ChannelPolicy(max_backlog=5)}}, "has max_backlog 5: a history does not record"),
        ({"defaults": ChannelPolicy(max_cost_out=5)}, "has a quota in cost"),
        ({"defaults": ChannelPolicy(rate="1/s of cost")}, "has a quota in cost"),
    ],
)
def test_scenario_refused(given: dict[str, Any], words: str) -> None:
    """What cannot be replayed is refused when the scenario is made, by name and value."""
    with pytest.raises(InvalidArgument, match=words):
        Scenario(**{"name": "x", **given})


def test_shares_by_cost_and_by_seconds() -> None:
    """By cost a tenant of dear messages gets as much as one of cheap ones; by seconds, one of long ones."""
    rows = [row(number, 0, 0, 1_000, cost=1) for number in range(1, 41)]
    rows += [row(number, 0, 0, 3_000, cost=4) for number in range(41, 81)]
    for one in rows:
        one["channel_id"] = one["cost"]
        one["channel"] = f"tenant-{one['cost']}"
    history = pa.Table.from_pylist(rows)

    def served(fair_by: FairBy) -> tuple[int, int]:
        """How many of the cheap and of the dear ones are among the first twenty."""
        replayed = replay_queue(history, Scenario(name="x", workers=1, fair_by=fair_by)).sort_by("id").slice(0, 20)
        cheap = replayed["channel"].to_pylist().count("tenant-1")
        return cheap, 20 - cheap

    assert served("messages") == (10, 10)
    assert served("cost") == (16, 4)
    assert served("seconds") == (15, 5)


@pytest.mark.parametrize("weight", [1, 3])
def test_slots_are_shared_while_handlers_run(weight: int) -> None:
    """As tests/fairness/test_seconds.py shows of the queue: 8 slots are shared by time between long and short handlers,
    by weight, and each has a slot in every second.
    """
    rows = [row(number, 0, 0, 6_000_000) for number in range(1, 101)]
    rows += [row(number, 0, 0, 100_000) for number in range(101, 2_001)]
    for one in rows:
        one["channel"] = "long" if one["id"] <= 100 else "short"
        one["channel_id"] = len(one["channel"])
    policies = {"long": ChannelPolicy(weight=weight)}
    scenario = Scenario(name="x", workers=8, fair_by="seconds", policies=policies)
    played = replay_queue(pa.Table.from_pylist(rows), scenario)
    started, finished = (played[name].cast(pa.int64()).to_numpy() - START for name in ("started_at", "finished_at"))
    is_long = np.array([channel == "long" for channel in played["channel"].to_pylist()])

    def shares(begin: int, end: int) -> tuple[float, float]:
        """The seconds of slots that each had between two times."""
        had = np.maximum(np.minimum(finished, end * 1e6) - np.maximum(started, begin * 1e6), 0) / 1e6
        return float(had[is_long].sum()), float(had[~is_long].sum())

    long, short = shares(1, 30)
    assert long + short == pytest.approx(8 * 29)
    assert long / weight == pytest.approx(short, rel=0.1)
    for second in range(1, 30):
        assert min(shares(second, second + 1)) > 0, second


def test_scenarios_refused() -> None:
    """Scenarios are told apart by their names, and there is at least one."""
    one = Scenario(name="x")

    with pytest.raises(InvalidArgument, match="two scenarios are called 'x'"):
        check_scenarios([one, one])
    with pytest.raises(InvalidArgument, match="a scenario is called 'as recorded, replayed'"):
        check_scenarios([Scenario(name="as recorded, replayed")])
    with pytest.raises(InvalidArgument, match="no scenario"):
        check_scenarios([])
    with pytest.raises(InvalidArgument, match="a scenario is 'x'"):
        check_scenarios(["x"])  # type: ignore[list-item]
