"""Targets and results: ratios within rounds, their median and spread, and the other contestants beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

from tests.bench.field.environments import BY_COST, BY_SECONDS, LIBRARY, PEERS
from tests.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.bench.field.outcome import FieldReport

_BOUND: Final = "lease and complete, batch 100"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was asked for.

    Attributes:
        what: what was measured.
        against: what it is compared with.
        reach: the ratio that was asked for; None: only told.
        better: whether more or less of it is better.
        ratios: one a round; empty: it was not measured in this run.
        others: the same of the other contestants.
    """

    what: str
    against: str
    reach: float | None
    better: Literal["more", "less"]
    ratios: list[float]
    others: dict[str, list[float]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Whether the median of the rounds is what was asked for."""
        if not self.ratios:
            return "not measured"
        if self.reach is None:
            return "no reach set"
        found = median(self.ratios)
        return "reached" if (found >= self.reach if self.better == "more" else found <= self.reach) else "missed"

    def figure(self) -> Figure:
        """The same for the table of all benchmarks."""
        notes = {name: f"{median(ratios):,.3g}" for name, ratios in self.others.items()}
        ones = [1.0] * len(self.ratios)
        return Figure(self.what, "", self.ratios, ones, self.against, self.reach, self.better, notes)


@dataclass(frozen=True, slots=True)
class _Target:
    """A row before it is measured.

    Attributes:
        against: what the workload's own ratio compares with; empty: the best of *among*.
        among: the peers that the best is chosen from, round by round.
        ours: which contestant is the library here.
    """

    what: str
    workload: str
    figure: str
    reach: float | None
    better: Literal["more", "less"]
    against: str = ""
    among: tuple[str, ...] = ()
    ours: str = LIBRARY.name

    def line(self, told: FieldReport) -> Row:
        values = {name: told.by_round(self.workload, name, self.figure) for name in told.contestants}
        values = {name: rounds for name, rounds in values.items() if rounds}
        against = self.against
        if not against:
            peers = [name for name in self.among if name in values]
            if not peers:
                return Row(self.what, "the best peer", self.reach, self.better, [])
            choose: Callable[..., str] = max if self.better == "more" else min
            against = choose(peers, key=lambda name: median(values[name].values()))
            best = values[against]
            values = {
                name: {number: value / best[number] for number, value in rounds.items() if number in best}
                for name, rounds in values.items()
            }
        ratios = {name: list(rounds.values()) for name, rounds in values.items() if rounds}
        return Row(self.what, against, self.reach, self.better, ratios.pop(self.ours, []), ratios)


def bound_of(figures: Iterable[Figure]) -> list[float]:
    """The ratios of the library to the unfair bound, among the figures of the other benchmarks."""
    return [ratio for figure in figures if figure.what.startswith(_BOUND) for ratio in figure.ratios]


def rows(told: FieldReport) -> list[Row]:
    """Every line of the table, those that this run did not measure too."""
    deep = "backlog_10m" if told.values("backlog_10m", LIBRARY.name, "messages") else "channels_100k"
    shallow = "10,000 and 100 tenants"
    return [
        *(asked.line(told) for asked in _ASKED),
        Row("fair, batch 100", "the unfair bound", 0.75, "more", told.bound),
        _Target(f"time a message, {deep}", deep, "time, to before", 1.25, "less", shallow).line(told),
        _Target(f"CPU time of the sessions, {deep}", deep, "sessions us, to before", 1.25, "less", shallow).line(told),
    ]


_PEERS: Final = tuple(peer.name for peer in PEERS)
_PYTHON: Final = tuple(peer.name for peer in PEERS if not peer.native)
_LEASING: Final = tuple(peer.name for peer in PEERS if peer.leases)
_ASKED: Final = (
    _Target("a minnow's wait beside a whale, p99", "whale", "p99 to alone", 2.0, "less", "its wait alone"),
    _Target("Jain's index, Zipf tenants, least second", "zipf", "jain, least", 0.99, "more", "max-min fair"),
    _Target(
        "Jain's index by cost, least second", "costs", "jain by cost, least", 0.99, "more", "even", ours=BY_COST.name
    ),
    _Target("the same, by seconds", "costs", "jain by cost, least", None, "more", "even", ours=BY_SECONDS.name),
    _Target("drain in batches", "drain", "messages/s", 2.0, "more", among=_PYTHON),
    _Target("drain in batches, native peers too", "drain", "messages/s", None, "more", among=_PEERS),
    _Target("drain one by one", "one_by_one", "messages/s", 1.0, "more", among=_PYTHON),
    _Target("in and out at once, a transaction each", "steady", "messages/s", 1.0, "more", among=_PYTHON),
    _Target("enqueue, a transaction each", "enqueue", "one by one, messages/s", None, "more", among=_PYTHON),
    _Target("a snapshot held open, last fifth", "snapshot", "last to first", 0.9, "more", "the first"),
    _Target("log bytes a message", "drain", "log bytes/message", 1.25, "less", among=_LEASING),
    _Target("time a message, many for tomorrow", "future", "time, to before", 1.05, "less", "none for tomorrow"),
    _Target("CPU time of the sessions, many for tomorrow", "future", "sessions us, to before", 1.05, "less", "none"),
)
