"""The outcome of a run: as JSON, and as one page of HTML that needs nothing else."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Self

from tests.bench.field.charts import CHARTS, chart, told
from tests.bench.field.targets import rows

if TYPE_CHECKING:
    from collections.abc import Iterable

_PAGE: Final = Path(__file__).with_name("page.html")
_EVEN: Final = 1.5


def machine() -> str:
    """What it ran on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one contestant did in one workload in one round.

    Attributes:
        figures: by name; empty where there are none.
        failure: why it failed, or nothing.
        not_for_it: why it does not take part, or nothing.
        seconds: how long all of it took, so that the quick form can be kept quick.
    """

    workload: str
    contestant: str
    round: int
    figures: dict[str, float]
    failure: str = ""
    not_for_it: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class FieldReport:
    """A whole run.

    Attributes:
        server: its version and settings.
        full: whether sizes were the full ones.
        contestants: who took part, and in which version.
        absent: who did not, and why.
        workloads: what was done, by name.
        loads: the machine's load average when each workload began.
        bound: the ratios of the library to the unfair bound, from the benchmarks beside the field.
        machine: what it ran on.
        load_before: the load average when the run began.
    """

    server: dict[str, str] = field(default_factory=dict)
    full: bool = False
    contestants: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    workloads: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    loads: dict[str, float] = field(default_factory=dict)
    bound: list[float] = field(default_factory=list)
    machine: str = field(default_factory=machine)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def busy(self) -> bool:
        """Whether the machine had other work when the run began, so that its figures prove nothing."""
        return self.load_before > (os.cpu_count() or 1) / 4

    def by_round(self, workload: str, contestant: str, figure: str) -> dict[int, float]:
        """A figure of a contestant, by round."""
        return {
            outcome.round: outcome.figures[figure]
            for outcome in self.outcomes
            if (outcome.workload, outcome.contestant) == (workload, contestant) and figure in outcome.figures
        }

    def values(self, workload: str, contestant: str, figure: str) -> list[float]:
        """The same, one value a round."""
        return list(self.by_round(workload, contestant, figure).values())

    def by_cost(self) -> tuple[dict[str, float], dict[str, float]]:
        """Who shares by cost and who does not: what costly tenants got to what cheap ones got, by contestant.

        Fair is who gives neither of them half as much again as the others.
        """
        got = {name: self.values("costs", name, "costly to cheap") for name in self.contestants}
        ratios = {name: median(found) for name, found in got.items() if found}
        fair = {name: ratio for name, ratio in ratios.items() if 1 / _EVEN <= ratio <= _EVEN}
        return fair, {name: ratio for name, ratio in ratios.items() if name not in fair}

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """The runs that these files tell as one: workloads that were run apart, and those who took part in each."""
        runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        outcomes = [Outcome(**outcome) for run in runs for outcome in run["outcomes"]]
        told: dict[str, Any] = {name: value for name, value in runs[0].items() if name in {*cls.__dataclass_fields__}}
        for name in ("contestants", "absent", "workloads", "loads"):
            told[name] = {key: value for run in runs for key, value in run[name].items()}
        told["bound"] = [ratio for run in runs for ratio in run["bound"]]
        told["load_before"] = max(run["load_before"] for run in runs)
        return cls(**told | {"outcomes": outcomes})

    def write(self, folder: Path, *, page: bool) -> None:
        """Write field.json, and field.html if there shall be a *page*.

        Args:
            folder: where.
            page: a run that is ended before its time leaves the JSON of what was done.
        """
        folder.mkdir(parents=True, exist_ok=True)
        run = asdict(self) | {"busy": self.busy}
        run["reached"] = [
            asdict(line)
            | {"verdict": line.verdict, "ratio": median(line.ratios) if line.ratios else None}
            | {"beside": {name: median(ratios) for name, ratios in line.others.items()}}
            for line in rows(self)
        ]
        (folder / "field.json").write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
        if page:
            (folder / "field.html").write_text(self.page(), encoding="utf-8")

    def page(self) -> str:
        """The page: what was reached, charts as SVG within it, and tables of all figures."""
        import jinja2  # noqa: PLC0415 - only where a page is made

        charts = [
            (title, chart(bars, logarithmic=logarithmic))
            for workload, figure, title, logarithmic in CHARTS
            if (bars := {name: found for name in self.contestants if (found := self.values(workload, name, figure))})
        ]
        tables = [(workload, text, *self._table(workload)) for workload, text in self.workloads.items()]
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        environment.filters["told"] = told
        return environment.from_string(_PAGE.read_text(encoding="utf-8")).render(
            run=self, reached=rows(self), by_cost=self.by_cost(), charts=charts, tables=tables
        )

    def _table(self, workload: str) -> tuple[list[str], list[tuple[str, list[str]]], list[Outcome]]:
        mine = [outcome for outcome in self.outcomes if outcome.workload == workload]
        names = list(dict.fromkeys(name for outcome in mine for name in outcome.figures))
        rows = [
            (contestant, [told(self.values(workload, contestant, name)) for name in names])
            for contestant in self.contestants
            if any(outcome.contestant == contestant and outcome.figures for outcome in mine)
        ]
        return names, rows, [outcome for outcome in mine if outcome.failure or outcome.not_for_it]
