"""View of a sample, as a table and as a JSON document."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from sqlalchemy_fairqueue.cli.formats import plural
from sqlalchemy_fairqueue.cli.stats import paused_text
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, cell, number_column, text_table
from sqlalchemy_fairqueue.cli.waits import wait_cells, wait_document

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from sqlalchemy_fairqueue.figures import ChannelSample, Sample


class Sort(StrEnum):
    """Sort orders of channels: the most first, names in their order."""

    READY = "ready"
    SCHEDULED = "scheduled"
    LEASED = "leased"
    RATE = "rate"
    CHANGE = "change"
    OLDEST = "oldest"
    NAME = "name"


_KEYS: dict[Sort, Callable[[ChannelSample], Any]] = {
    Sort.READY: lambda channel: -channel.stats.ready,
    Sort.SCHEDULED: lambda channel: -channel.stats.scheduled,
    Sort.LEASED: lambda channel: -channel.stats.leased,
    Sort.RATE: lambda channel: -(channel.rate or 0.0),
    Sort.CHANGE: lambda channel: -(channel.change or 0.0),
    Sort.OLDEST: lambda channel: -(channel.oldest or timedelta()),
    Sort.NAME: lambda _: 0,
}


def sorted_channels(sample: Sample, sort: Sort, limit: int) -> Sequence[ChannelSample]:
    """The channels to show."""
    key = _KEYS[sort]
    return sorted(sample.channels, key=lambda channel: (key(channel), channel.stats.queue, channel.stats.channel))[
        :limit
    ]


_COLUMNS = (
    Column("channel"),
    number_column("ready"),
    number_column("scheduled", BLANK),
    number_column("leased"),
    number_column("done/s", BLANK),
    number_column("change/s", BLANK),
    number_column("oldest ready"),
    Column("waits for", blank=BLANK),
    Column("which has", blank=BLANK),
    Column("state", blank=BLANK),
)


def render(sample: Sample, sort: Sort, limit: int) -> RenderableType:
    """The sample as text."""
    several = len({channel.stats.queue for channel in sample.channels}) > 1
    channels = sorted_channels(sample, sort, limit)
    rows = [([cell(channel.stats.queue)] if several else []) + _row(channel) for channel in channels]
    columns = ((Column("queue"),) if several else ()) + _COLUMNS
    parts: list[RenderableType] = [_headline(sample), text_table(columns, rows)]
    if sample.total > len(channels):
        parts.append(Text(f"and {plural(sample.total - len(channels), 'more channel')}", style="dim"))
    return Group(*parts)


def _row(channel: ChannelSample) -> list[Text]:
    stats = channel.stats
    return [
        cell(stats.channel, "bold"),
        cell(stats.ready),
        cell(stats.scheduled),
        cell(stats.leased),
        _per_second(channel.rate),
        _per_second(channel.change, sign="+"),
        cell(channel.oldest),
        *map(cell, wait_cells(channel.wait)),
        paused_text(stats.paused_at),
    ]


def sample_document(sample: Sample, sort: Sort, limit: int) -> dict[str, Any]:
    """The sample as a JSON document."""
    return {
        "at": sample.at,
        "since_seconds": sample.since,
        "totals": _totals(sample),
        "channels": [
            {
                "queue": channel.stats.queue, "channel": channel.stats.channel, "ready": channel.stats.ready,
                "scheduled": channel.stats.scheduled, "leased": channel.stats.leased,
                "completed_per_second": channel.rate, "change_per_second": channel.change,
                "oldest_ready_seconds": channel.oldest, "paused_at": channel.stats.paused_at,
                **wait_document(channel.wait),
            }
            for channel in sorted_channels(sample, sort, limit)
        ],
    }  # fmt: skip


def _totals(sample: Sample) -> dict[str, Any]:
    rates = [channel.rate for channel in sample.channels if channel.rate is not None]
    return {
        "channels": sample.total,
        "ready": sum(channel.stats.ready for channel in sample.channels),
        "scheduled": sum(channel.stats.scheduled for channel in sample.channels),
        "leased": sum(channel.stats.leased for channel in sample.channels),
        "completed_per_second": sum(rates) if rates else None,
        "oldest_ready_seconds": max(
            (channel.oldest for channel in sample.channels if channel.oldest is not None), default=None
        ),
    }


def _headline(sample: Sample) -> Text:
    totals = _totals(sample)
    rate = totals["completed_per_second"]
    done = "" if rate is None else f", {rate:,.1f} done/s"
    return Text(
        f"{sample.at:%H:%M:%S} UTC  {plural(totals['channels'], 'channel')}: {totals['ready']:,} ready, "
        f"{totals['scheduled']:,} scheduled, {totals['leased']:,} leased{done}",
        style="bold",
    )


def _per_second(value: float | None, sign: str = "") -> Text:
    if value is None:
        return cell(None)
    return Text(f"{value:{sign},.1f}" if value else "0")
