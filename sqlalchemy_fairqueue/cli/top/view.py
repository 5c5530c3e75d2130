"""View of a sample, as a table and as a JSON document."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from sqlalchemy_fairqueue.cli.stats import paused_text
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, cell, number_column, text_table
from sqlalchemy_fairqueue.cli.waits import wait_cells, wait_document
from sqlalchemy_fairqueue.figures import age
from sqlalchemy_fairqueue.formats import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from sqlalchemy_fairqueue.figures import Sample
    from sqlalchemy_fairqueue.values.reports import ChannelStats


class Sort(StrEnum):
    """Sort orders of channels: the most first, names in their order."""

    READY = "ready"
    SCHEDULED = "scheduled"
    HELD = "held"
    LEASED = "leased"
    RATE = "rate"
    CHANGE = "change"
    OLDEST = "oldest"
    NAME = "name"


def sorted_channels(sample: Sample, sort: Sort, limit: int) -> Sequence[ChannelStats]:
    """The channels to show."""
    keys: dict[Sort, Callable[[ChannelStats], Any]] = {
        Sort.READY: lambda channel: -channel.ready,
        Sort.SCHEDULED: lambda channel: -channel.scheduled,
        Sort.HELD: lambda channel: -channel.held,
        Sort.LEASED: lambda channel: -channel.leased,
        Sort.RATE: lambda channel: -(sample.rate(channel) or 0.0),
        Sort.CHANGE: lambda channel: -(sample.change(channel) or 0.0),
        Sort.OLDEST: lambda channel: -(age(channel.oldest_ready_at, sample.at) or timedelta()),
        Sort.NAME: lambda _: 0,
    }
    key = keys[sort]
    return sorted(sample.channels, key=lambda channel: (key(channel), channel.queue, channel.channel))[:limit]


_COLUMNS = (
    Column("channel"),
    number_column("ready"),
    number_column("scheduled", BLANK),
    number_column("held", BLANK),
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
    several = len({channel.queue for channel in sample.channels}) > 1
    channels = sorted_channels(sample, sort, limit)
    rows = [([cell(channel.queue)] if several else []) + _row(sample, channel) for channel in channels]
    columns = ((Column("queue"),) if several else ()) + _COLUMNS
    parts: list[RenderableType] = [_headline(sample), text_table(columns, rows)]
    if sample.total > len(channels):
        parts.append(Text(f"and {plural(sample.total - len(channels), 'more channel')}", style="dim"))
    return Group(*parts)


def _row(sample: Sample, channel: ChannelStats) -> list[Text]:
    return [
        cell(channel.channel, "bold"),
        cell(channel.ready),
        cell(channel.scheduled),
        cell(channel.held),
        cell(channel.leased),
        _per_second(sample.rate(channel)),
        _per_second(sample.change(channel), sign="+"),
        cell(age(channel.oldest_ready_at, sample.at)),
        *map(cell, wait_cells(channel.wait)),
        paused_text(channel.paused_at),
    ]


def sample_document(sample: Sample, sort: Sort, limit: int) -> dict[str, Any]:
    """The sample as a JSON document."""
    return {
        "at": sample.at,
        "since_seconds": sample.since,
        "totals": _totals(sample),
        "channels": [
            {
                "queue": channel.queue, "channel": channel.channel, "ready": channel.ready,
                "scheduled": channel.scheduled, "held": channel.held, "behind": channel.behind,
                "leased": channel.leased,
                "completed_per_second": sample.rate(channel), "change_per_second": sample.change(channel),
                "oldest_ready_seconds": age(channel.oldest_ready_at, sample.at), "paused_at": channel.paused_at,
                **wait_document(channel.wait),
            }
            for channel in sorted_channels(sample, sort, limit)
        ],
    }  # fmt: skip


def _totals(sample: Sample) -> dict[str, Any]:
    return {
        "channels": sample.total,
        "ready": sum(channel.ready for channel in sample.channels),
        "scheduled": sum(channel.scheduled for channel in sample.channels),
        "held": sum(channel.held for channel in sample.channels),
        "leased": sum(channel.leased for channel in sample.channels),
        "completed_per_second": sum(sample.rates.values()) if sample.rates else None,
        "oldest_ready_seconds": max(
            (sample.at - one.oldest_ready_at for one in sample.channels if one.oldest_ready_at), default=None
        ),
    }


def _headline(sample: Sample) -> Text:
    totals = _totals(sample)
    rate = totals["completed_per_second"]
    done = "" if rate is None else f", {rate:,.1f} done/s"
    held = f"{totals['held']:,} held, " if totals["held"] else ""
    return Text(
        f"{sample.at:%H:%M:%S} UTC  {plural(totals['channels'], 'channel')}: {totals['ready']:,} ready, "
        f"{totals['scheduled']:,} scheduled, {held}{totals['leased']:,} leased{done}",
        style="bold",
    )


def _per_second(value: float | None, sign: str = "") -> Text:
    if value is None:
        return cell(None)
    return Text(f"{value:{sign},.1f}" if value else "0")
