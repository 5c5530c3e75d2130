"""The library beside published designs and peers, workload by workload."""

import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import pytest

from tests.bench.field.arena import Failed, entered, prepare
from tests.bench.field.contestants import ALL, BY_COST, BY_SECONDS, LIBRARY, PEERS, CannotRun, Contestant, interpreter
from tests.bench.field.workloads import WORKLOADS
from tests.bench.figures import Better, Figure, Report, Rounds, table
from tests.bench.stage import Stage

_COLUMNS: Final = {
    "Fairness": {
        ("whale", "p99 to alone"): "minnow beside a whale, p99 to alone",
        ("whale", "wait p99, ms"): "the same, ms",
        ("newcomers", "wait p99, ms"): "newcomers' wait p99, ms",
        ("newcomers", "whale to alone"): "whale's time with newcomers to without",
        ("zipf", "jain, least"): "Jain's index, Zipf, least",
        ("zipf", "longest starvation, ms"): "longest starvation, ms",
        ("costs", "costly to cheap"): "costs 10 and 1, costly tenants' time to cheap ones'",
        ("costs", "jain by cost, least"): "Jain's index by cost, least",
    },
    "Throughput, messages/s": {
        ("drain", "messages/s"): "drain in batches",
        ("one_by_one", "messages/s"): "drain one by one",
        ("steady", "messages/s"): "in and out",
        ("enqueue", "one by one, messages/s"): "enqueue one by one",
        ("enqueue", "in bulk, messages/s"): "enqueue in bulk",
        ("business", "to without"): "5 ms transactions with enqueue to without",
    },
    "Cost of a message in the drain": {
        ("drain", "commits/message"): "commits",
        ("drain", "log bytes/message"): "log, bytes",
        ("drain", "dead rows/message"): "dead rows",
        ("drain", "server us/message"): "server us",
        ("drain", "client us/message"): "workers us",
    },
}
_PYTHON: Final = tuple(peer.name for peer in PEERS if not peer.native)
_ALL_PEERS: Final = tuple(peer.name for peer in PEERS)
_LEASING: Final = tuple(peer.name for peer in PEERS if peer.leases)


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio that was set out to be reached: to the best of the peers *among* whom it is sought, or to 1."""

    what: str
    workload: str
    figure: str
    reach: float | None
    better: Better = "more"
    among: Sequence[str] = ()
    ours: str = LIBRARY.name

    def figure_of(self, found: Rounds) -> Figure | None:
        """Return ours beside the best peer's, by the rounds that both have; None if there is nothing to compare."""
        values = {who: self._by_round(found, who) for who in (self.ours, *self.among)}
        ours = values.pop(self.ours)
        beside = {who: theirs for who, theirs in values.items() if theirs.keys() & ours.keys()}
        best = "even"
        if self.among and beside:
            best = (max if self.better == "more" else min)(beside, key=lambda who: median(beside[who].values()))
        theirs = beside.get(best, {} if self.among else dict.fromkeys(ours, 1.0))
        both = sorted(ours.keys() & theirs.keys())
        if not both:
            return None
        ratios = [ours[number] for number in both], [theirs[number] for number in both]
        return Figure(self.what, self.figure, *ratios, best, self.reach, self.better)

    def _by_round(self, found: Rounds, who: str) -> Mapping[int, float]:
        return {number: told[self.figure] for number, told in enumerate(found.get(who, ())) if self.figure in told}


TARGETS: Final = (
    Target("a minnow's wait beside a whale, p99", "whale", "p99 to alone", 2.0, "less"),
    Target("Jain's index, Zipf tenants, least second", "zipf", "jain, least", 0.99),
    Target("Jain's index by cost, least second", "costs", "jain by cost, least", 0.99, ours=BY_COST.name),
    Target("the same, by seconds", "costs", "jain by cost, least", None, ours=BY_SECONDS.name),
    Target("drain in batches", "drain", "messages/s", 2.0, among=_PYTHON),
    Target("drain in batches, native peers too", "drain", "messages/s", None, among=_ALL_PEERS),
    Target("drain one by one", "one_by_one", "messages/s", 1.0, among=_PYTHON),
    Target("in and out at once, a transaction each", "steady", "messages/s", 1.0, among=_PYTHON),
    Target("enqueue, a transaction each", "enqueue", "one by one, messages/s", None, among=_PYTHON),
    Target("enqueue in bulk", "enqueue", "in bulk, messages/s", 1.0, among=_PYTHON),
    Target("log bytes a message", "drain", "log bytes/message", 1.25, "less", among=_LEASING),
)


@dataclass(slots=True)
class Field:
    """All that take part.

    Attributes:
        stage: The server.
        ready: The contestants, each with its interpreter and a database that has its tables.
        found: What each did, by workload; a round in which it failed has no figures.
        told: Versions of those who take part, and why others do not or failed.
    """

    stage: Stage
    ready: dict[str, tuple[Contestant, str, str]] = field(default_factory=dict)
    found: dict[str, Rounds] = field(default_factory=lambda: defaultdict(Rounds))
    told: list[str] = field(default_factory=list)

    def tables(self) -> Iterator[str]:
        """Give the tables of the benchmarks page."""
        for title, columns in _COLUMNS.items():
            shown = {key: head for key, head in columns.items() if key[0] in self.found}
            rows = [[who, *(self.found[workload].told(who, name) for workload, name in shown)] for who in self.ready]
            if shown:
                yield table([title, *shown.values()], [row for row in rows if any(row[1:])])


@pytest.fixture(scope="module")
def contestants(server: Stage, report: Report, pytestconfig: pytest.Config, *, full: bool) -> Iterator[Field]:
    """Everybody, made ready once; their tables go into the report at the end."""
    everybody = Field(server)
    named = {*pytestconfig.getoption("--bench-field").split(",")} - {""}
    for contestant in ALL:
        if contestant.name not in named if named else contestant.full and not full:
            continue
        try:
            python, version = interpreter(contestant, pytestconfig.cache.mkdir("peers"))
            everybody.ready[contestant.name] = (contestant, python, prepare(server, contestant, python))
            everybody.told.append(version)
        except (CannotRun, Failed) as error:
            everybody.told.append(f"{contestant.name} does not take part: {error}")
    everybody.told.append(f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f} at the begin")
    yield everybody
    for _, _, database in everybody.ready.values():
        server.drop(database)
    report.tables += [*everybody.tables(), "\n".join(dict.fromkeys(everybody.told))]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload(
    workload: str, contestants: Field, report: Report, pytestconfig: pytest.Config, rounds: range, *, full: bool
) -> None:
    """Everybody does the workload in turn, and the library delivers each message once."""
    names = [name for name, (who, _, _) in contestants.ready.items() if workload in (who.only or WORKLOADS)]
    found = contestants.found[workload]
    for number in rounds[: None if full or pytestconfig.getoption("--bench-rounds") else 1]:
        for name in names if number % 2 == 0 else names[::-1]:
            try:
                with entered(contestants.stage, *contestants.ready[name]) as arena:
                    figures = WORKLOADS[workload](arena, full=full)
            except Failed as error:
                if name == LIBRARY.name:
                    raise
                contestants.told.append(f"{name} failed in {workload}: {str(error)[-300:]}")
                figures = {}
            found.setdefault(name, []).append(figures)
    for target in TARGETS:
        if target.workload == workload and (figure := target.figure_of(found)):
            report.add(figure)
