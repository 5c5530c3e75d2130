"""Contestants, made ready once, and the report that is written at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.bench.field.arena import Arena, prepare
from tests.bench.field.environments import (
    BY_COST,
    BY_SECONDS,
    DESIGNS,
    FAIRER,
    LIBRARY,
    LONG_TURNS,
    PEERS,
    WITHOUT_PREFETCH,
    CannotRun,
    Contestant,
    interpreter,
)
from tests.bench.field.outcome import FieldReport
from tests.bench.field.script import Failed
from tests.bench.field.targets import bound_of
from tests.bench.field.workloads import WORKLOADS
from tests.bench.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_QUICK_DESIGNS = ("fifo", "blocks", "channels")


@dataclass(frozen=True, slots=True)
class Field:
    """All that take part.

    Attributes:
        report: where outcomes are kept.
    """

    stage: Stage
    report: FieldReport
    ready: dict[str, tuple[Contestant, str, str]]

    def arena(self, name: str) -> Arena:
        """A fresh arena for a contestant."""
        contestant, python, database = self.ready[name]
        return Arena(self.stage, contestant, python, database)

    def who(self, workload: str, *, full: bool) -> list[str]:
        """Who does a workload."""
        quick = WORKLOADS[workload].quick
        return [
            name
            for name, (contestant, _, _) in self.ready.items()
            if (workload in contestant.only or not contestant.only)
            and (full or quick == "all" or (quick == "library" and contestant == LIBRARY))
        ]


@pytest.fixture(scope="session")
def field(stage: Stage, report: Report, pytestconfig: pytest.Config, *, full: bool) -> Iterator[Field]:
    """Make everybody ready, and write the page when all is done."""
    told = FieldReport(report.server, full)
    ready = {}
    environments = pytestconfig.cache.mkdir("peers")
    designs = [design for design in DESIGNS if full or design.name in _QUICK_DESIGNS]
    named = {*pytestconfig.getoption("--bench-field").split(",")} - {""}
    for contestant in (LIBRARY, WITHOUT_PREFETCH, LONG_TURNS, BY_COST, BY_SECONDS, *designs, *PEERS, *FAIRER):
        if named and contestant.name not in named:
            continue
        try:
            python, version = interpreter(contestant, environments)
            ready[contestant.name] = (contestant, python, prepare(stage, contestant, python))
            told.contestants[contestant.name] = version
        except (CannotRun, Failed) as error:
            told.absent[contestant.name] = str(error)
    yield Field(stage, told, ready)
    server = Wire(stage.conninfo())
    for _, _, database in ready.values():
        server.run(f"drop database if exists {database} with (force)")
    server.close()
    told.bound = bound_of(report.figures)
    told.write(pytestconfig.getoption("--bench-folder"), page=True)
