"""Shows the demo: a few lines, a live table in a terminal, a summary of both runs and a picture."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sqlalchemy_fairqueue.demo.business import LEASE
from sqlalchemy_fairqueue.demo.run import BOB, File, Run, Visit
from sqlalchemy_fairqueue.demo.workers import FAIR, FIFO, SERVICES

_BOB, _SERVED, _WAITING, _ACCIDENT = "#8195a8", "#0f766e", "#f4a582", "#b42318"
_LONG = 1.0  # seconds that a small customer notices


class Screen:
    """Prints what happens; on a terminal, ``with screen.live`` also shows a live table of the fair queue and FIFO."""

    def __init__(self, visits: list[Visit]) -> None:
        is_terminal = sys.stdout.isatty()
        self.console = Console(force_terminal=is_terminal, width=None if is_terminal else 100, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self._visits = visits
        self._runs = {service: Run(service, []) for service in SERVICES}
        self._told: set[object] = set()  # of accidents

    def tell(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def show(self, run: Run) -> None:
        self._runs[run.service] = run
        total = sum(len(visit.files) for visit in self._visits)
        progress = "\n".join(f"{one.service}: {one.done:,} of {total:,} files parsed" for one in self._runs.values())
        self.live.update(_table(self._visits, [*self._runs.values()], progress), refresh=True)
        if run.accident and (what := (run.accident, len(run.takeover) == len(run.orphans))) not in self._told:
            self._told.add(what)
            self.tell(f"  {' '.join(story(run))}")

    def summarize(self, runs: list[Run], findings: dict[str, int]) -> None:
        bob, *others = (visit.customer for visit in self._visits)
        legend = "median, p95: wait from upload to result; last at: since Bob's upload"
        self.console.print(_table(self._visits, runs, legend))
        waits = [seconds(run.median(*others)) for run in runs]
        ends = [seconds(run.of(bob)[-1].parsed) for run in runs]
        times = runs[1].median(*others) / runs[0].median(*others)
        self.tell(
            f"Behind Bob's {len(runs[0].of(bob)):,} files a small customer's file waited [bold green]{waits[0]}[/] in "
            f"the {FAIR} and [bold red]{waits[1]}[/] in {FIFO},\n[bold]{times:,.0f} times[/] as long (medians). "
            f"Bob had his last result after {ends[0]} and {ends[1]}.\n"
        )
        for run in runs:
            if run.accident:
                self.tell(f"[green]✓[/] {run.service}: " + "\n  ".join(story(run)) + ", each once")
            if small := sorted({file.customer for file in run.orphans} - {bob}):
                self.tell(f"  Not all was Bob's: what {', '.join(small)} waited has these seconds in it")
            uploads = f"{len(run.files):,} uploads, {len(run.files):,} results"
            self.tell(f"[green]✓[/] {run.service}: {uploads}, each exactly once, and nothing left waiting")
        found = "{functions:,} functions, {classes:,} classes, {lines:,} lines; {errors} files no valid Python"
        self.tell(f"[green]✓[/] the same results: {found.format_map(findings)}")


def _table(visits: list[Visit], runs: list[Run], caption: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("\ncustomer", no_wrap=True)
    for title in ("\nfiles", *(title for run in runs for title in (f"{run.service}\nmedian", "\np95", "\nlast at"))):
        table.add_column(title, justify="right")
    names = [visit.customer for visit in visits]
    for name, customers in [*((name, [name]) for name in names), ("the ten others", names[1:])]:
        total = sum(len(visit.files) for visit in visits if visit.customer in customers)
        cells = [cell for run in runs for cell in _waits(run.of(*customers))]
        table.add_row(name, f"{total:,}", *cells, end_section=name == names[-1])
    return table


def _waits(files: list[File]) -> list[Text]:
    if not files:
        return [Text("·", style="dim")] * 3
    waits = sorted(file.wait for file in files)
    p95 = waits[math.ceil(0.95 * len(waits)) - 1]  # nearest rank
    return [_wait(median(waits), files), _wait(p95, files), Text(seconds(files[-1].parsed))]


def _wait(wait: float, files: list[File]) -> Text:
    bobs = files[0].customer == BOB
    return Text(seconds(wait), style="" if bobs else "bold red" if wait > _LONG else "bold green")


def story(run: Run) -> tuple[str, str]:
    assert run.accident is not None  # noqa: S101 - nobody asks before
    number, results = len(run.orphans), [seconds(wait) for wait in run.takeover]
    lease = f"(lease: {LEASE.total_seconds():.0f} s)"
    what = f"{run.accident.worker} was killed by SIGKILL with [bold]{number} file{'s'[: number > 1]}[/] in its hands."
    if len(results) < number:
        now = max(file.parsed for file in run.files) - run.accident.at
        return what, f"[yellow]{now:.1f} s later others have parsed {len(results)} {lease}[/]"
    when = " to ".join(dict.fromkeys((results[0], results[-1])))
    return what, f"Others had parsed {'them' if number > 1 else 'it'} [bold]{when}[/] later {lease}"


def seconds(duration: float) -> str:
    return f"{duration:.2f} s" if duration < 10 else f"{duration:.1f} s"  # noqa: PLR2004 - three digits in all


def draw(visits: list[Visit], runs: list[Run], path: Path) -> None:
    """Draw who was served when: each customer has a row, with a line for each parsed file."""
    with tempfile.TemporaryDirectory(prefix="fairqueue-") as folder:
        # matplotlib and fontconfig write into their cache folders when they are imported.
        os.environ.setdefault("MPLCONFIGDIR", folder)
        os.environ.setdefault("XDG_CACHE_HOME", folder)
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 7.6), dpi=150, layout="constrained")
        figure.suptitle(f"Ten small customers behind Bob's {len(runs[0].of(BOB)):,} files: when each file is parsed")
        panels = figure.subplots(len(runs), 1, sharex=True)
        for panel, run in zip(panels, runs, strict=True):
            _draw_run(panel, [visit.customer for visit in visits], run)
        panels[-1].set_xlabel("seconds since Bob's upload; at the end of each row: median wait")
        figure.savefig(path)


def _draw_run(panel: Any, customers: list[str], run: Run) -> None:
    title = f"{run.service}: they wait {seconds(run.median(*customers[1:]))} (median)"
    for row, customer in enumerate(customers):
        files, is_bob = run.of(customer), customer == BOB
        parsed, came = [file.parsed for file in files], min(file.uploaded for file in files)
        if not is_bob:
            panel.barh(row, parsed[-1] - came, left=came, height=0.5, color=_WAITING)
        panel.vlines(parsed, row - 0.34, row + 0.34, color=_BOB if is_bob else _SERVED, lw=0.5 if is_bob else 1.8)
        panel.text(parsed[-1], row, f"  {seconds(run.median(customer))}", va="center", fontsize=8)
    if run.accident:
        panel.axvspan(run.accident.at, run.accident.at + run.takeover[0], color=_ACCIDENT, alpha=0.16)
        title += f"; red: from the kill of {run.accident.worker} until others had parsed one of its files"
    panel.set_title(title, loc="left")
    panel.set_yticks(range(len(customers)), customers)
    panel.invert_yaxis()
    panel.spines[:].set_visible(False)
