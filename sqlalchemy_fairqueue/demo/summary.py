"""Summary at the end: one table with both runs side by side, and a sentence on what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from sqlalchemy_fairqueue.demo.app.models import LEASE
from sqlalchemy_fairqueue.demo.progress_table import LONG
from sqlalchemy_fairqueue.demo.scenario import BOB

if TYPE_CHECKING:
    from rich.console import Console

    from sqlalchemy_fairqueue.demo.outcome import Outcome
    from sqlalchemy_fairqueue.demo.scenario import Scenario
    from sqlalchemy_fairqueue.demo.takeover import Takeover


def print_summary(console: Console, scenario: Scenario, outcomes: list[Outcome]) -> None:
    """Print the table, what it shows, and what was verified."""
    console.print(_table(scenario, outcomes))
    bob, *others = (visit.customer for visit in scenario.visits)
    waits = [outcome.of(*others).median for outcome in outcomes]
    ends = [seconds(outcome.of(bob).last_parsed) for outcome in outcomes]
    found = outcomes[0].findings
    lines = [
        (
            f"Behind Bob's {outcomes[0].of(bob).files:,} files a small customer's file waited "
            f"[bold green]{seconds(waits[0])}[/] in the {outcomes[0].service} and "
            f"[bold red]{seconds(waits[1])}[/] in {outcomes[1].service},"
        ),
        (
            f"[bold]{waits[1] / waits[0]:,.0f} times[/] as long (medians). "
            f"Bob had his last result after {ends[0]} and {ends[1]}."
        ),
        "",
        *(line for outcome in outcomes if outcome.takeover for line in _accident(outcome.service, outcome.takeover)),
        *(
            f"[green]✓[/] {outcome.service}: {len(outcome.served):,} uploads, {len(outcome.served):,} results, "
            "each exactly once, and nothing left waiting"
            for outcome in outcomes
        ),
        (
            f"[green]✓[/] the same results: {found.functions:,} functions, {found.classes:,} classes, "
            f"{found.lines:,} lines; {found.errors} files no valid Python"
        ),
    ]
    for line in lines:
        console.print(line, highlight=False)


def _accident(service: str, takeover: Takeover) -> list[str]:
    first, last = seconds(takeover.results[0]), seconds(takeover.results[-1])
    when = first if first == last else f"{first} to {last}"
    them = "it" if takeover.held == 1 else "them"
    lines = [
        (
            f"[green]✓[/] {service}: {takeover.accident.worker} was killed by SIGKILL with "
            f"[bold]{takeover.files}[/] in its hands."
        ),
        f"  Others had parsed {them} [bold]{when}[/] later (lease: {LEASE.total_seconds():.0f} s), each once",
    ]
    if others := ", ".join(sorted(takeover.customers - {BOB})):
        lines.append(f"  Not all was Bob's: what {others} waited has these seconds in it")
    return lines


def _table(scenario: Scenario, outcomes: list[Outcome]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        caption="median, p95: wait from upload to result; last at: since Bob's upload",
        caption_justify="left",
    )
    table.add_column("\ncustomer")
    table.add_column("\nfiles", justify="right")
    for outcome in outcomes:
        for title in (f"{outcome.service}\nmedian", "\np95", "\nlast at"):
            table.add_column(title, justify="right")
    customers = [visit.customer for visit in scenario.visits]
    for customer in customers:
        table.add_row(*_row(customer, [customer], outcomes), end_section=customer == customers[-1])
    table.add_row(*_row("the ten others", customers[1:], outcomes), style="bold")
    return table


def _row(title: str, customers: list[str], outcomes: list[Outcome]) -> list[str | Text]:
    row: list[str | Text] = [title, f"{outcomes[0].of(*customers).files:,}"]
    for outcome in outcomes:
        waits = outcome.of(*customers)
        for wait in (waits.median, waits.p95):
            style = "" if BOB in customers else "red" if wait > LONG else "green"
            row.append(Text(seconds(wait), style=style))
        row.append(seconds(waits.last_parsed))
    return row


def seconds(duration: float) -> str:
    """A duration as people read it."""
    return f"{duration:.2f} s" if duration < 10 else f"{duration:.1f} s"  # noqa: PLR2004 - three digits in all
