"""Command of the demo: its options, and one run after the other."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sqlalchemy_fairqueue.demo.chart import draw
from sqlalchemy_fairqueue.demo.database import migrated_database
from sqlalchemy_fairqueue.demo.errors import DemoError
from sqlalchemy_fairqueue.demo.outcome import Outcome, measure
from sqlalchemy_fairqueue.demo.progress_table import Screen
from sqlalchemy_fairqueue.demo.report import Forecast, check_report, files_ahead, make_report
from sqlalchemy_fairqueue.demo.run import perform
from sqlalchemy_fairqueue.demo.scenario import BOB, make_scenario
from sqlalchemy_fairqueue.demo.services import FAIR, FIFO, SERVICES
from sqlalchemy_fairqueue.demo.summary import print_summary
from sqlalchemy_fairqueue.embedded import any_server, named_server

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORMATS = (".png", ".svg", ".pdf")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo.

    Raises:
        DemoError: A promise was not kept.
        EmbeddedServerError: There is no server to run it on.
    """
    options = _parser().parse_args(arguments)
    if options.report:
        check_report()
    console = Console(width=None if sys.stdout.isatty() else 100)
    scenario = make_scenario(options.seed, options.limit)
    bobs, *others = (len(visit.files) for visit in scenario.visits)
    console.print(
        f"Bob uploads {bobs:,} source files of {scenario.library}.\nWhile that backlog stands, ten small customers "
        f"upload {sum(others)} files. {options.workers} workers parse them all, twice:\n"
        f"with a [bold]{FAIR}[/], then with a first-come-first-served job table ([bold]{FIFO}[/]).\n"
        "In both, one worker is killed in mid-work.\n",
        highlight=False,
    )
    outcomes: list[Outcome] = []
    forecast: Forecast | None = None
    with Screen(console, scenario) as screen:
        screen.tell("connecting to PostgreSQL" if named_server() else "starting PostgreSQL")
        with any_server() as server:
            for service in SERVICES:
                screen.tell(f"{service}: making a database, running the app's migrations, starting workers")
                with migrated_database(server) as engine:
                    takeover = perform(service, engine, scenario, options.workers, screen)
                    outcomes.append(measure(service, engine, scenario, takeover))
                    if service == FAIR and options.report:
                        forecast = make_report(engine, options.report, screen.step)
            screen.tell("stopping PostgreSQL")
    if outcomes[0].findings != outcomes[1].findings:
        problem = f"the same files gave different results: {outcomes[0].findings} and {outcomes[1].findings}"
        raise DemoError(problem)
    print_summary(console, scenario, outcomes)
    draw(scenario, outcomes, options.output)
    console.print(f"\nWho was served when, as a picture: [bold]{options.output}[/]", highlight=False, soft_wrap=True)
    if forecast is not None:
        for line in _told(forecast, outcomes[-1]):
            console.print(line, highlight=False, soft_wrap=True)
        told = f"How fair it was, from {forecast.attempts:,} recorded attempts, as a page: [bold]{options.report}[/]"
        console.print(told, highlight=False, soft_wrap=True)


def _told(forecast: Forecast, fifo: Outcome) -> list[str]:
    """The forecast of the second half beside it."""
    foreseen, happened = forecast.files_ahead, files_ahead(fifo.served, BOB)
    before = f"a small customer's file waits for [bold]{foreseen:,.0f}[/] others"
    return [
        f"\nFrom the fair half, a replay foresaw that first come, first served {before}.",
        f"In the real second half it waited for [bold]{happened:,.0f}[/].",
        f"A replay of the first half itself is {forecast.error:.0%} off its record.",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sqlalchemy_fairqueue.demo",
        description="Watch a fair queue and a plain job table serve the same customers.",
    )
    parser.add_argument(
        "--workers",
        type=_count,
        default=max(2, min(4, os.cpu_count() or 2)),
        metavar="N",
        help="worker processes (default: %(default)s)",
    )
    parser.add_argument(
        "--limit", type=_count, metavar="N", help="files that Bob uploads (default: the whole standard library)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="who else uploads what (default: %(default)s)")
    parser.add_argument(
        "--output", type=_picture, default="fairqueue-demo.png", metavar="FILE",
        help=f"where to write the picture: {', '.join(_FORMATS)} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=_page, metavar="FILE",
        help="also write a fairness report of the history (an .html file); needs the extra report",
    )  # fmt: skip
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        problem = f"{text!r} is not a whole number from 1"
        raise argparse.ArgumentTypeError(problem)
    return int(text)


def _picture(text: str) -> Path:
    return _file(text, _FORMATS)


def _page(text: str) -> Path:
    return _file(text, (".html",))


def _file(text: str, endings: tuple[str, ...]) -> Path:
    path = Path(text)
    if path.suffix not in endings:
        problem = f"{text!r} does not end in one of {', '.join(endings)}"
        raise argparse.ArgumentTypeError(problem)
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        problem = f"{text!r} cannot be written; name a file in a folder that you may write to"
        raise argparse.ArgumentTypeError(problem)
    return path
