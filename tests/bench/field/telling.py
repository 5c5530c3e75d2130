"""The outcome of a run: as JSON, and as one page of HTML that needs nothing else."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from io import StringIO
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CHARTS: Final = (
    ("drain", "messages/s", "Throughput of a drain, messages a second", False),
    ("whale", "wait p99, ms", "A minnow's wait beside a whale, 99th percentile, ms", True),
    ("zipf", "jain, least", "Jain's index to the max-min fair share, least of the seconds", False),
    ("zipf", "longest starvation, ms", "Longest starvation of a tenant, ms", True),
    ("enqueue", "one by one, messages/s", "Enqueue in a transaction each, messages a second", False),
    ("steady", "messages/s", "In and out at once, messages a second", False),
    ("snapshot", "last to first", "Throughput under an open snapshot, last sixth to first", False),
    ("drain", "log bytes/message", "Bytes of log a message", False),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one contestant did in one workload in one round.

    Attributes:
        figures: by name; empty where it failed.
        failure: why, or nothing.
    """

    workload: str
    contestant: str
    round: int
    figures: dict[str, float]
    failure: str = ""


@dataclass(slots=True)
class FieldReport:
    """A whole run.

    Attributes:
        server: its version and settings.
        full: whether sizes were the full ones.
        contestants: who took part, and in which version.
        absent: who did not, and why.
        workloads: what was done, by name.
    """

    server: dict[str, str] = field(default_factory=dict)
    full: bool = False
    contestants: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    workloads: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def busy(self) -> bool:
        """Whether the machine had other work when the run began, so that its figures prove nothing."""
        return self.load_before > (os.cpu_count() or 1) / 4

    def values(self, workload: str, contestant: str, figure: str) -> list[float]:
        """A figure of a contestant, one value a round."""
        return [
            outcome.figures[figure]
            for outcome in self.outcomes
            if (outcome.workload, outcome.contestant) == (workload, contestant) and figure in outcome.figures
        ]

    def write(self, folder: Path) -> None:
        """Write field.json and field.html."""
        folder.mkdir(parents=True, exist_ok=True)
        told = asdict(self) | {"busy": self.busy, "machine": machine()}
        (folder / "field.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        (folder / "field.html").write_text(self.page(), encoding="utf-8")

    def page(self) -> str:
        """The page: charts as SVG within it, and tables of all figures."""
        import jinja2  # noqa: PLC0415 - only where a page is made

        charts = [
            (title, _chart(bars, logarithmic=logarithmic))
            for workload, figure, title, logarithmic in _CHARTS
            if (bars := {name: found for name in self.contestants if (found := self.values(workload, name, figure))})
        ]
        tables = [(workload, text, *self._table(workload)) for workload, text in self.workloads.items()]
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        failures = [outcome for outcome in self.outcomes if outcome.failure]
        return environment.from_string(_PAGE).render(
            run=self, charts=charts, tables=tables, failures=failures, machine=machine()
        )

    def _table(self, workload: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
        mine = [outcome for outcome in self.outcomes if outcome.workload == workload and outcome.figures]
        names = list(dict.fromkeys(name for outcome in mine for name in outcome.figures))
        rows = [
            (contestant, [_told(self.values(workload, contestant, name)) for name in names])
            for contestant in self.contestants
            if any(outcome.contestant == contestant for outcome in mine)
        ]
        return names, rows


def machine() -> str:
    """What it ran on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


def _told(values: Iterable[float]) -> str:
    found = list(values)
    if not found:
        return ""
    middle, least, most = (_number(value) for value in (median(found), min(found), max(found)))
    return middle if least == most else f"{middle} ({least} to {most})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _chart(bars: dict[str, list[float]], *, logarithmic: bool) -> str:
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415 - only where a page is made

    picture = Picture(figsize=(7, 0.4 + 0.28 * len(bars)), layout="constrained")
    axes = picture.subplots()
    names = list(bars)[::-1]
    middles = [median(bars[name]) for name in names]
    spread = [
        [middle - min(bars[name]) for name, middle in zip(names, middles, strict=True)],
        [max(bars[name]) - middle for name, middle in zip(names, middles, strict=True)],
    ]
    colours = ["#c2410c" if name == "fairqueue" else "#94a3b8" for name in names]
    axes.barh(names, middles, xerr=spread, color=colours, height=0.7, ecolor="#334155")
    for place, middle in enumerate(middles):
        axes.text(middle, place, f" {_number(middle)}", va="center", fontsize=8)
    axes.margins(x=0.12)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(left=min(1.0, *middles))
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = StringIO()
    picture.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue().partition("<svg")[2]


_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Queues in PostgreSQL, side by side</title>
<style>
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1e293b; }
  table { border-collapse: collapse; font-size: 12px; display: block; overflow-x: auto; }
  th, td { border-bottom: 1px solid #cbd5e1; padding: .25rem .6rem; text-align: right; white-space: nowrap; }
  th:first-child, td:first-child { text-align: left; }
  .busy { background: #fef3c7; border-left: .4rem solid #d97706; padding: .6rem 1rem; }
  svg { max-width: 100%; height: auto; }
</style>
<h1>Queues in PostgreSQL, side by side</h1>
{% if run.busy %}
<p class="busy">The machine had other work when this run began (load {{ "%.1f"|format(run.load_before) }}): the figures
show that the harness works, and nothing more.</p>
{% endif %}
<p>{{ "Full" if run.full else "Quick" }} form. {{ machine }}.
{% for name, value in run.server.items() %}{{ name }} {{ value }}{{ ", " if not loop.last else "." }}{% endfor %}<br>
Each figure is the median of the rounds, with the least and the greatest.</p>
{% for title, picture in charts %}
<h2>{{ title }}</h2>
<svg{{ picture|safe }}
{% endfor %}
{% for name, text, figures, rows in tables %}
<h2>{{ name }}</h2>
<p>{{ text }}</p>
<table>
<tr><th></th>{% for figure in figures %}<th>{{ figure }}</th>{% endfor %}</tr>
{% for contestant, cells in rows %}
<tr><td>{{ contestant }}</td>{% for cell in cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% endfor %}
<h2>Who took part</h2>
<ul>
{% for name, version in run.contestants.items() %}<li>{{ name }}: {{ version }}</li>
{% endfor %}
{% for name, reason in run.absent.items() %}<li>{{ name }} could not run: {{ reason }}</li>
{% endfor %}
{% for one in failures %}<li>{{ one.contestant }} failed at {{ one.workload }}: {{ one.failure }}</li>
{% endfor %}
</ul>
</html>
"""
