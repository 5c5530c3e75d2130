"""Progress on the screen: a live table in a terminal, a few lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sqlalchemy_fairqueue.demo.app.models import LEASE
from sqlalchemy_fairqueue.demo.scenario import BOB
from sqlalchemy_fairqueue.demo.services import SERVICES

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from rich.console import Console

    from sqlalchemy_fairqueue.demo.run import Standing, Standings
    from sqlalchemy_fairqueue.demo.scenario import Scenario
    from sqlalchemy_fairqueue.demo.takeover import Takeover

LONG = 1.0
"""Seconds that a small customer notices."""

_WIDTH = 100
_QUARTERS = 4


class Screen:
    """Shows the standings of both runs.

    Args:
        console: Where.
        scenario: Who is to come.
    """

    def __init__(self, console: Console, scenario: Scenario) -> None:
        self._console = console
        self._scenario = scenario
        self._stage = ""
        self._takeovers: dict[str, Takeover] = {}
        self._shown: dict[str, Standings] = {name: {} for name in SERVICES}
        self._told: set[tuple[str, str, int]] = set()
        moving = console.file.isatty() and not console.is_dumb_terminal  # FORCE_COLOR alone makes no terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if moving else None

    def __enter__(self) -> Self:
        """Take over the terminal."""
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back, the table wiped."""
        if self._live:
            self._live.stop()

    def tell(self, stage: str) -> None:
        """Show what is going on."""
        self._stage = stage
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            self._console.print(stage, highlight=False)

    def step(self, name: str, number: int, count: int) -> None:
        """Show a step of the report, with a bar of the steps that are done."""
        bar = "\u2501" * number + "\u2500" * (count - number)
        self.tell(f"report {bar} {name}" if self._live else f"report: {name} ({number + 1} of {count})")

    def show(self, service: str, standings: Standings) -> None:
        """Show where the customers of a run stand."""
        self._shown[service] = standings
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            self._print(service, standings)

    def show_takeover(self, service: str, takeover: Takeover) -> None:
        """Show who does the work of a worker that was killed."""
        first = service not in self._takeovers
        self._takeovers[service] = takeover
        if self._live:
            self._live.update(self._table(), refresh=True)
        elif first or takeover.complete:
            self._console.print("  ", _killed(takeover), sep="")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, width=min(_WIDTH, self._console.width))
        accidents = [Text(f"{name}: ").append(_killed(takeover)) for name, takeover in self._takeovers.items()]
        table.caption = Text("\n").join([Text(self._stage), *accidents])
        table.caption_justify = "left"
        table.add_column("customer")
        table.add_column("files", justify="right")
        for name in SERVICES:
            table.add_column(name, ratio=1)
            table.add_column("longest wait", justify="right", min_width=7)
        for visit in self._scenario.visits:
            row: list[ProgressBar | Text] = []
            for name in SERVICES:
                row += _cells(self._shown[name].get(visit.customer), len(visit.files), small=visit.customer != BOB)
            table.add_row(visit.customer, f"{len(visit.files):,}", *row)
        return table

    def _print(self, service: str, standings: Standings) -> None:
        """A line for each customer who has everything, and for each quarter of Bob's."""
        for visit in self._scenario.visits:
            standing = standings.get(visit.customer)
            quarter = _QUARTERS * standing.parsed // len(visit.files) if standing else 0
            told = (service, visit.customer, quarter)
            wanted = quarter == _QUARTERS or (quarter and visit.customer == BOB)
            if standing and wanted and told not in self._told:
                self._told.add(told)
                self._console.print(
                    f"  {visit.customer} has {standing.parsed:,} of {len(visit.files):,} files parsed, "
                    f"longest wait {standing.longest_wait:.2f} s",
                    highlight=False,
                )


def _killed(takeover: Takeover) -> Text:
    """A line about the accident, as it stands."""
    lease = LEASE.total_seconds()
    told = Text(f"{takeover.accident.worker} was killed with {takeover.files} in its hands: ", style="bold red")
    if takeover.complete:
        return told.append(f"all parsed by others within {takeover.results[-1]:.2f} s (lease: {lease:.0f} s)", "green")
    now = f"{takeover.seconds:.1f} s later {len(takeover.results)} parsed by others (lease: {lease:.0f} s)"
    return told.append(now, "yellow")


def _cells(standing: Standing | None, files: int, *, small: bool) -> tuple[ProgressBar | Text, Text]:
    if standing is None:
        return Text("·", style="dim"), Text("")
    bar = ProgressBar(total=files, completed=standing.parsed, complete_style="cyan", finished_style="green")
    style = "" if not small else "bold red" if standing.longest_wait > LONG else "bold green"
    return bar, Text(f"{standing.longest_wait:.2f} s", style=style)
