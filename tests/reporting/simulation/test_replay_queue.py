"""Inputs that a replay takes from a history, the capacity that it shows, and the course that it computes from them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.simulation.replay import (
    SCHEMA,
    Capacity,
    capacity_of,
    replay_queue,
    simulated_attempts,
    trace_of,
)
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario, as_recorded, check_scenarios
from sqlalchemy_fairqueue.reporting.simulation.simulator import simulate
from sqlalchemy_fairqueue.reporting.simulation.state import compiled
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


def limits(scenario: Scenario, *names: str) -> list[int | None]:
    """The limits of channels of these names."""
    found = {names[n]: policy.max_concurrency for policy, numbers in scenario.policies_of(names) for n in numbers}
    return [found[name] for name in names]


def test_policies() -> None:
    """A channel's own name comes before patterns, the first pattern that fits before others, defaults last. A recorded
    channel whose name looks like a pattern has its policy alone.
    """
    given = {name: ChannelPolicy(max_concurrency=n) for n, name in enumerate(("big*", "big-one", "*-one", "odd["), 1)}
    scenario = Scenario(name="x", defaults=ChannelPolicy(max_concurrency=9), policies=given)
    names = ("big-two", "big-one", "little-one", "small", "odd[", "Big-two")
    assert limits(scenario, *names) == [1, 2, 3, 9, 4, 9]
    recorded = as_recorded({name: ChannelPolicy(max_concurrency=n) for n, name in enumerate(("a*", "a[b]"), 2)})
    assert limits(recorded, "a*", "ab", "a[b]", "a") == [2, None, 3, None]


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
