"""``top``: readings of the channels, shown in a terminal, in a pipe, or as a document."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from itertools import count as numbers
from operator import attrgetter
from threading import Event
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sqlalchemy_fairqueue.cli.installation import Installation, open_installation
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result, console, results, writing
from sqlalchemy_fairqueue.cli.stats import oldest_column, paused_text, wait_columns, wait_document
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, number_column
from sqlalchemy_fairqueue.doctor.queues import summary_of
from sqlalchemy_fairqueue.figures.channels import Sample, take_sample
from sqlalchemy_fairqueue.figures.queues import age
from sqlalchemy_fairqueue.formats import plural
from sqlalchemy_fairqueue.values.reports import ChannelStats

_PIPE_LINES = 20
_OTHER_LINES = 5
"""How many lines of a screen show no channel: summary, totals, headings, how many channels are left out, the cursor."""


class Sort(StrEnum):
    """The columns to sort by. In the docstring of :func:`top`, ``{choices}`` stands for the names of these columns."""

    READY = "ready"
    SCHEDULED = "scheduled"
    HELD = "held"
    LEASED = "leased"
    RATE = "rate"
    CHANGE = "change"
    OLDEST = "oldest"
    NAME = "name"


class _Stopped(BaseException):
    """Raised when SIGTERM comes."""


def top(
    options: Options,
    *,
    sort: Annotated[Sort, Spec(metavar="COLUMN")] = Sort.READY,
    limit: Annotated[int | None, Spec(min=1)] = None,
    interval: Annotated[timedelta, Spec(shown="2s")] = timedelta(seconds=2),
    count: Annotated[int | None, Spec(min=1)] = None,
    once: bool = False,
) -> Result | None:
    """Watch channels: ready, scheduled and leased messages, how fast they change, how long the oldest waits.

    done/s are completions, for queues that record their history; change/s is the growth of the number of messages. With
    --json, only the last reading is printed.

    Options:
        sort: The column to sort by, one of {choices}. Figures descend, names ascend.
        limit: The most channels to show. Default: as many as fit; 20 in a pipe; all with --json.
        interval: Time between two readings.
        count: Stop after so many readings. Default: 1 with --json, otherwise on Ctrl-C.
        once: As --count 1.
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
            # Ctrl-C is the usual way to stop top.
            pass
    return None


def _samples(installation: Installation, interval: timedelta, count: int | None) -> Iterator[Sample]:
    previous = None
    for number in numbers(1):
        # The queues are listed each time, since some may be new and some gone.
        previous = take_sample(installation.target.engine, installation.schema, installation.queues(), previous)
        yield previous
        if number == count:
            return
        Event().wait(interval.total_seconds())


def _show_live(out: Console, samples: Iterator[Sample], sort: Sort, limit: int | None) -> None:
    with _stopped_by_sigterm(), Live(console=out, auto_refresh=False, screen=True) as live:
        for sample in samples:
            fitting = max(1, out.height - _OTHER_LINES)
            live.update(_rendered(sample, sort, min(limit or fitting, fitting)), refresh=True)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Leave the ``with`` block on SIGTERM, so that the terminal gets its screen back."""

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
            out.print(_rendered(sample, sort, limit))


def _sorted(sample: Sample, sort: Sort, limit: int) -> Sequence[ChannelStats]:
    most: dict[Sort, Callable[[ChannelStats], Any]] = {
        Sort.RATE: lambda channel: sample.rate(channel) or 0.0,
        Sort.CHANGE: lambda channel: sample.change(channel) or 0.0,
        Sort.OLDEST: lambda channel: age(channel.oldest_ready_at, sample.at) or timedelta(),
        Sort.NAME: lambda _: 0,
    }
    key = most.get(sort, attrgetter(sort.value))
    return sorted(sample.channels, key=lambda channel: (-key(channel), channel.queue, channel.channel))[:limit]


def _table(sample: Sample) -> Table:
    return Table(
        Column("queue"),
        Column("channel", style="bold"),
        number_column("ready"),
        number_column("scheduled", blank=BLANK),
        number_column("held", blank=BLANK),
        Column("", "behind"),
        number_column("leased"),
        number_column("done/s", "completed_per_second", sample.rate, _per_second, blank=BLANK),
        number_column(
            "change/s", "change_per_second", sample.change, lambda value: _per_second(value, "+"), blank=BLANK
        ),
        oldest_column(sample.at),
        *wait_columns(sample.at),
        Column("", "paused_at"),
        Column("state", None, get=lambda one: paused_text(one.paused_at, sample.at), blank=BLANK),
    )


def _rendered(sample: Sample, sort: Sort, limit: int) -> RenderableType:
    several = len({channel.queue for channel in sample.channels}) > 1
    channels = _sorted(sample, sort, limit)
    parts: list[RenderableType] = [
        Text(summary_of(sample.queues, sample.at), style="bold", no_wrap=True, overflow="ellipsis"),
        _totals_line(sample),
        _table(sample).screen(channels, () if several else {"queue"}),
    ]
    if sample.total > len(channels):
        parts.append(Text(f"and {plural(sample.total - len(channels), 'more channel')}", style="dim"))
    return Group(*parts)


def sample_document(sample: Sample, sort: Sort, limit: int) -> dict[str, Any]:
    table = _table(sample)
    return {
        "at": sample.at,
        "since_seconds": sample.since,
        "summary": summary_of(sample.queues, sample.at),
        "totals": _totals(sample),
        "channels": [table.document(one) | wait_document(one.wait) for one in _sorted(sample, sort, limit)],
    }


def _totals(sample: Sample) -> dict[str, Any]:
    states = ("ready", "scheduled", "held", "leased")
    return {
        "channels": sample.total,
        **{state: sum(getattr(channel, state) for channel in sample.channels) for state in states},
        "completed_per_second": sum(sample.rates.values()) if sample.rates else None,
        "oldest_ready_seconds": max(
            (sample.at - one.oldest_ready_at for one in sample.channels if one.oldest_ready_at), default=None
        ),
    }


def _totals_line(sample: Sample) -> Text:
    totals = _totals(sample)
    rate = totals["completed_per_second"]
    done = "" if rate is None else f", {rate:,.1f} done/s"
    held = f"{totals['held']:,} held, " if totals["held"] else ""
    return Text(
        f"{sample.at:%H:%M:%S} UTC  {plural(totals['channels'], 'channel')}: {totals['ready']:,} ready, "
        f"{totals['scheduled']:,} scheduled, {held}{totals['leased']:,} leased{done}"
    )


def _per_second(value: float, sign: str = "") -> Text:
    return Text(f"{value:{sign},.1f}" if value else "0")
