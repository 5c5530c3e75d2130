"""``top``: samples of the channels, shown in a terminal, a pipe or as a document."""

# Annotations are read when the program starts, so that they must not be postponed.
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count as numbers
from threading import Event
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from sqlalchemy_fairqueue.cli.installation import Installation, open_installation
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.output import console, results, writing
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.top.view import Sort, render, sample_document
from sqlalchemy_fairqueue.figures import Sample, take_sample
from sqlalchemy_fairqueue.formats import parse_duration

_PIPE_LINES = 20
_OTHER_LINES = 4
"""Lines of a screen without a channel: headline, headings, the count of channels left out, the cursor's line."""


class _Stopped(BaseException):
    """SIGTERM has come."""


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
            "--interval",
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Time between two samples.",
            show_default="2s",
        ),
    ] = timedelta(seconds=2),
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Stop after so many samples. Default: on Ctrl-C.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="As --count 1.")] = False,
) -> Result | None:
    """Watch channels: ready, scheduled and leased messages, how fast they change, how long the oldest waits.

    done/s are completions, for queues that record their history; change/s is the growth of the number of
    messages. With --json it prints the last of --count samples (default: 1).
    """
    wanted = 1 if once or (options.json and count is None) else count
    with open_installation(options) as installation:
        samples = _samples(installation, interval, wanted)
        if options.json:
            *_, last = samples
            return Result(sample_document(last, sort, limit or len(last.channels)))
        out = console()
        try:
            if results().isatty() and not out.is_dumb_terminal and wanted != 1:
                _show_live(out, samples, sort, limit)
            else:
                _print_samples(out, samples, sort, limit or _PIPE_LINES)
        except KeyboardInterrupt:
            # The usual way to stop it.
            pass
    return None


def _samples(installation: Installation, interval: timedelta, count: int | None) -> Iterator[Sample]:
    previous = None
    for number in numbers(1):
        # The queues are listed each time: some are new, some are gone.
        previous = take_sample(installation.target.engine, installation.schema, installation.queues(), previous)
        yield previous
        if number == count:
            return
        Event().wait(interval.total_seconds())


def _show_live(out: Console, samples: Iterator[Sample], sort: Sort, limit: int | None) -> None:
    with _stopped_by_sigterm(), Live(console=out, auto_refresh=False, screen=True) as live:
        for sample in samples:
            fitting = max(1, out.height - _OTHER_LINES)
            live.update(render(sample, sort, min(limit or fitting, fitting)), refresh=True)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Leave the block on SIGTERM, so that the terminal gets its screen back."""

    def stop(_: int, __: object) -> None:
        raise _Stopped

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _Stopped:
        raise typer.Exit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


def _print_samples(out: Console, samples: Iterator[Sample], sort: Sort, limit: int) -> None:
    for sample in samples:
        with writing():
            if sample.since is not None:
                out.print()
            out.print(render(sample, sort, limit))
