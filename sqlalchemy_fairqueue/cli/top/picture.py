"""A look as a table, and for programs."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from sqlalchemy_fairqueue.cli.printing import cell, counted
from sqlalchemy_fairqueue.cli.rows import state
from sqlalchemy_fairqueue.cli.tables import NOTHING, Column, listing, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from sqlalchemy_fairqueue.cli.top.looks import Line, Look


class Sort(StrEnum):
    """What channels are sorted by, the most first; names in their order."""

    READY = "ready"
    SCHEDULED = "scheduled"
    LEASED = "leased"
    RATE = "rate"
    CHANGE = "change"
    OLDEST = "oldest"
    NAME = "name"


_KEYS: dict[Sort, Callable[[Line], Any]] = {
    Sort.READY: lambda line: -line.stats.ready,
    Sort.SCHEDULED: lambda line: -line.stats.scheduled,
    Sort.LEASED: lambda line: -line.stats.leased,
    Sort.RATE: lambda line: -(line.rate or 0.0),
    Sort.CHANGE: lambda line: -(line.change or 0.0),
    Sort.OLDEST: lambda line: -(line.oldest or timedelta()),
    Sort.NAME: lambda _: 0,
}


def chosen(look: Look, sort: Sort, limit: int) -> Sequence[Line]:
    """The lines to show."""
    key = _KEYS[sort]
    return sorted(look.lines, key=lambda line: (key(line), line.stats.queue, line.stats.channel))[:limit]


_COLUMNS = (
    Column("channel"),
    number("ready"),
    number("scheduled", NOTHING),
    number("leased"),
    number("done/s", NOTHING),
    number("change/s", NOTHING),
    number("oldest ready"),
    Column("state", silent=NOTHING),
)


def picture(look: Look, sort: Sort, limit: int) -> RenderableType:
    """A look for people."""
    several = len({line.stats.queue for line in look.lines}) > 1
    lines = chosen(look, sort, limit)
    rows = [([cell(line.stats.queue)] if several else []) + _cells(line) for line in lines]
    columns = ((Column("queue"),) if several else ()) + _COLUMNS
    parts: list[RenderableType] = [_headline(look), listing(columns, rows)]
    if len(look.lines) > len(lines):
        parts.append(Text(f"and {counted(len(look.lines) - len(lines), 'more channel')}", style="dim"))
    return Group(*parts)


def _cells(line: Line) -> list[Text]:
    stats = line.stats
    return [
        cell(stats.channel, "bold"),
        cell(stats.ready),
        cell(stats.scheduled),
        cell(stats.leased),
        _per_second(line.rate),
        _per_second(line.change, sign="+"),
        cell(line.oldest),
        state(stats.paused_at),
    ]


def document(look: Look, sort: Sort, limit: int) -> dict[str, Any]:
    """A look for programs."""
    return {
        "at": look.at,
        "since_seconds": look.since,
        "totals": _totals(look),
        "channels": [
            {
                "queue": line.stats.queue, "channel": line.stats.channel, "ready": line.stats.ready,
                "scheduled": line.stats.scheduled, "leased": line.stats.leased,
                "completed_per_second": line.rate, "change_per_second": line.change,
                "oldest_ready_seconds": line.oldest, "paused_at": line.stats.paused_at,
            }
            for line in chosen(look, sort, limit)
        ],
    }  # fmt: skip


def _totals(look: Look) -> dict[str, Any]:
    rates = [line.rate for line in look.lines if line.rate is not None]
    return {
        "channels": len(look.lines),
        "ready": sum(line.stats.ready for line in look.lines),
        "scheduled": sum(line.stats.scheduled for line in look.lines),
        "leased": sum(line.stats.leased for line in look.lines),
        "completed_per_second": sum(rates) if rates else None,
        "oldest_ready_seconds": max((line.oldest for line in look.lines if line.oldest is not None), default=None),
    }


def _headline(look: Look) -> Text:
    totals = _totals(look)
    rate = totals["completed_per_second"]
    done = "" if rate is None else f", {rate:,.1f} done/s"
    return Text(
        f"{look.at:%H:%M:%S} UTC  {counted(totals['channels'], 'channel')}: {totals['ready']:,} ready, "
        f"{totals['scheduled']:,} scheduled, {totals['leased']:,} leased{done}",
        style="bold",
    )


def _per_second(value: float | None, sign: str = "") -> Text:
    if value is None:
        return cell(None)
    return Text(f"{value:{sign},.1f}" if value else "0")
