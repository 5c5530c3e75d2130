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
from tests.reporting.simulation.replay_programs import START, row


def course(history: pa.Table, scenario: Scenario) -> list[tuple[int, int, int]]:
    """Message, start and end of each attempt in the order in which they end, counted from START."""
    played = replay_queue(history, scenario).sort_by("id")
    started, finished = (played[name].cast(pa.int64()).to_numpy() - START for name in ("started_at", "finished_at"))
    return list(zip(played["message_id"].to_pylist(), started.tolist(), finished.tolist(), strict=True))


_FOUR = [row(1, 0, 0, 100), row(2, 0, 0, 100), row(3, 0, 100, 200), row(4, 0, 100, 200)]
_LIMITED: dict[str, Any] = {"channel_id": 7, "channel": "a"}
_ONE_AT_A_TIME = {"workers": 5, "defaults": ChannelPolicy(max_concurrency=1)}


@pytest.mark.parametrize(
    ("rows", "scenario", "expected"),
    [
        pytest.param(_FOUR, {}, [(1, 0, 100), (2, 0, 100), (3, 100, 200), (4, 100, 200)], id="as many as there were"),
        pytest.param(
            _FOUR, {"workers": 1}, [(1, 0, 100), (2, 100, 200), (3, 200, 300), (4, 300, 400)],
            id="half the workers take twice as long",
        ),
        pytest.param(
            [row(1, 0, 500, 600), row(2, 0, 600, 700)], {"workers": 2}, [(1, 500, 600), (2, 500, 600)],
            id="nothing begins before the record did",
        ),
        pytest.param(
            [row(1, 0, 50, 60, outcome="retried"), row(1, 0, 90, 95, ready=80, attempt=2, id=2)], {},
            [(1, 50, 60), (1, 80, 85)], id="the next attempt follows by the delay that it had",
        ),
        pytest.param(
            [row(1, 0, 10, 20), row(2, 5, 90, 95, ready=80, attempt=3)], {}, [(1, 10, 20), (2, 80, 85)],
            id="without its earlier attempts it comes when it is ready again",
        ),
        pytest.param([row(1, 0, 10, 5)], {}, [(1, 10, 10)], id="ended before it began"),
        pytest.param(
            [row(1, 0, 0, 500, outcome="expired", **_LIMITED), row(2, 1, 500, 600, **_LIMITED)], _ONE_AT_A_TIME,
            [(1, 0, 500), (2, 500, 600)], id="a lease that has not ended holds its slot, whoever holds it",
        ),
    ],
)  # fmt: skip
def test_courses(rows: list[dict[str, Any]], scenario: dict[str, Any], expected: list[tuple[int, int, int]]) -> None:
    """When each message is handled: as in the record, but for the workers and limits of the scenario."""
    assert course(pa.Table.from_pylist(rows), Scenario(name="x", **scenario)) == expected


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


def test_histories_refused() -> None:
    """A row that is there twice, rather than done twice; a message in two channels, which is of two databases."""
    twice = row(2, 0, 0, 10)
    other = row(2, 0, 0, 10, id=3, channel_id=3, channel="other")
    for second, words in ((twice, "row 2 of the history of queue 'q'"), (other, "'tenant-2' and in channel 'other'")):
        with pytest.raises(InvalidArgument, match=words):
            replay_queue(pa.Table.from_pylist([row(1, 0, 0, 10), twice, second]), Scenario(name="x"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": ""}, "name '' has 0 bytes"),
        ({"name": "as recorded"}, "called 'as recorded'"),
        ({"discipline": "lifo"}, "discipline is 'lifo'"),
        ({"fair_by": "pages"}, "fair_by is 'pages'"),
        ({"fair_by": "cost", "discipline": "fifo"}, "is first come, first served and fair by cost; leave one"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": "3"}, "workers is '3'"),
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
    one, record = Scenario(name="x"), Scenario(name="as recorded, replayed")
    refused: dict[str, list[Any]] = {"are called 'x'": [one, one], "'as recorded, replayed'": [record]}
    for words, given in (refused | {"no scenario": [], "a scenario is 'x'": ["x"]}).items():
        with pytest.raises(InvalidArgument, match=words):
            check_scenarios(given)
