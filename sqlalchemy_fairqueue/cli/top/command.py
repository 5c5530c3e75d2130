"""``top``: look, show, wait, again."""

# Annotations are read when the program starts, so that they must not be postponed.
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count as numbers
from threading import Event
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.options import Options, typed
from sqlalchemy_fairqueue.cli.printing import console
from sqlalchemy_fairqueue.cli.sites import Site, site_of
from sqlalchemy_fairqueue.cli.top.looks import Look, look
from sqlalchemy_fairqueue.cli.top.picture import Sort, document, picture
from sqlalchemy_fairqueue.cli.units import duration

_PIPE_LINES = 20
_OTHER_LINES = 4
"""Lines of a screen that are no channel: the headline, the headings, what is left out, the cursor's."""


def top(
    options: Options,
    *,
    sort: Annotated[
        Sort, typer.Option("--sort", metavar="COLUMN", help=f"By: {', '.join(Sort)}; the most first.")
    ] = Sort.READY,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help=f"Channels. Default: what fits; {_PIPE_LINES} in a pipe."),
    ] = None,
    interval: Annotated[
        timedelta,
        typer.Option(
            "--interval", parser=typed(duration), metavar="DURATION", help="Between looks.", show_default="2s"
        ),
    ] = timedelta(seconds=2),
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="End after so many looks. Default: on Ctrl-C.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="As --count 1.")] = False,
) -> Answer | None:
    """Watch channels: what is ready, scheduled and leased, how fast it moves, how long the oldest waits.

    done/s are completions, for queues that record their history; change/s is by how much the messages of a channel
    become more or fewer. With --json the last of --count looks (default: 1) is printed.
    """
    looks = 1 if once or (options.json and count is None) else count
    with site_of(options) as site:
        seen = _each(site, interval, looks)
        if options.json:
            *_, last = seen
            return Answer(document(last, sort, limit or len(last.lines)))
        out = console()
        try:
            if sys.stdout.isatty() and not out.is_dumb_terminal and looks != 1:
                _live(out, seen, sort, limit)
            else:
                _printed(out, seen, sort, limit or _PIPE_LINES)
        except KeyboardInterrupt:
            # The way that it is meant to end.
            pass
    return None


def _each(site: Site, interval: timedelta, looks: int | None) -> Iterator[Look]:
    before = None
    for number in numbers(1):
        # Anew each time: queues come and go.
        before = look(site, site.queues(), before)
        yield before
        if number == looks:
            return
        Event().wait(interval.total_seconds())


def _live(out: Console, looks: Iterator[Look], sort: Sort, limit: int | None) -> None:
    with _ended_by_sigterm(), Live(console=out, auto_refresh=False, screen=True) as live:
        for seen in looks:
            fitting = max(1, out.height - _OTHER_LINES)
            live.update(picture(seen, sort, min(limit or fitting, fitting)), refresh=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Leave the block when SIGTERM asks for it, so that the terminal gets its screen back."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _printed(out: Console, looks: Iterator[Look], sort: Sort, limit: int) -> None:
    for seen in looks:
        if seen.since is not None:
            out.print()
        out.print(picture(seen, sort, limit))
        sys.stdout.flush()
