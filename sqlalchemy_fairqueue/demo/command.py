"""The demo's command: reads the options, runs the fair queue and then the job table, and tells how they compare."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy_fairqueue.demo.endings import DemoError
from sqlalchemy_fairqueue.demo.report import files_ahead, make_report
from sqlalchemy_fairqueue.demo.run import LIBRARY, app_database, check, make_visits, play
from sqlalchemy_fairqueue.demo.screen import Screen, draw
from sqlalchemy_fairqueue.demo.workers import FAIR, FIFO, SERVICES, running_workers
from sqlalchemy_fairqueue.embedded import any_server, named_server


def main() -> None:
    options = _options()
    visits = make_visits(options.seed, options.limit)
    bobs, *others = (len(visit.files) for visit in visits)
    screen = Screen(visits)
    screen.tell(
        f"Bob uploads {bobs:,} source files of {LIBRARY}.\nWhile that backlog stands, ten small customers "
        f"upload {sum(others)} files. {options.workers} workers parse them all, twice:\n"
        f"with a [bold]{FAIR}[/], then with a first-come-first-served job table ([bold]{FIFO}[/]).\n"
        "In both, one worker is killed in mid-work.\n"
    )
    runs, findings = [], []
    forecast = ""
    with screen.live:
        screen.tell("connecting to PostgreSQL" if named_server() else "starting PostgreSQL")
        with any_server() as server:
            for service in SERVICES:
                screen.tell(f"{service}: making the app's database, starting workers")
                with app_database(server) as engine:
                    with running_workers(service, engine.url, options.workers) as workers:
                        screen.tell(f"{service}: at work")
                        for run in play(service, engine, visits, workers):
                            screen.show(run)
                    runs.append(run)
                    findings.append(check(run, engine, visits))
                    if service == FAIR and options.report:
                        forecast = make_report(engine, options.report, screen.tell)
            screen.tell("stopping PostgreSQL")
    if findings[0] != findings[1]:
        raise DemoError(f"the same files gave different results: {findings[0]} and {findings[1]}")
    screen.summarize(runs, findings[0])
    draw(visits, runs, options.output)
    screen.tell(f"\nWho was served when, as a picture: [bold]{options.output}[/]")
    if forecast:
        screen.tell(f"{forecast}\nIn the real second half it waited for [bold]{files_ahead(runs[-1].files):,.0f}[/].")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sqlalchemy_fairqueue.demo",
        description="Watch a fair queue and a plain job table serve the same customers.",
    )
    add, workers = parser.add_argument, max(2, min(4, os.cpu_count() or 2))
    add("--workers", metavar="N", type=int, default=workers, help="worker processes (default: %(default)s)")
    add("--limit", metavar="N", type=int, help="files that Bob uploads (default: the whole standard library)")
    add("--seed", metavar="N", type=int, default=1, help="who else uploads what (default: %(default)s)")
    picture, report = "where to write the picture (default: %(default)s)", "also write a fairness report, an .html"
    add("--output", metavar="FILE", type=Path, default=Path("fairqueue-demo.png"), help=picture)
    add("--report", metavar="FILE", type=Path, help=f"{report}; needs the extra report")
    options = parser.parse_args()
    if min(options.workers, 1 if options.limit is None else options.limit) < 1:
        parser.error("--workers and --limit are whole numbers from 1")
    for path, endings in (options.output, (".png", ".svg", ".pdf")), (options.report, (".html",)):
        if path and (path.suffix not in endings or path.is_dir() or not os.access(path.parent, os.W_OK)):
            kind = " or ".join(endings)
            parser.error(f"cannot write {str(path)!r}: name an {kind} in a folder that you may write to")
    if options.report and not all(map(find_spec, ("jinja2", "pyarrow"))):
        parser.error("a report needs more: pip install 'sqlalchemy-fairqueue[demo,report]'")
    return options
