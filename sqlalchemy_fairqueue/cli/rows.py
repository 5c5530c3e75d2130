"""Queues and channels as rows of a table, and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from sqlalchemy_fairqueue.cli.printing import cell
from sqlalchemy_fairqueue.cli.tables import NOTHING, Column, number
from sqlalchemy_fairqueue.cli.units import rate_words

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from sqlalchemy_fairqueue.values import ChannelStats, QueueStats

QUEUE_COLUMNS = (
    Column("queue"),
    number("ready"),
    number("scheduled", NOTHING),
    number("leased"),
    number("limit", NOTHING),
    number("dead", NOTHING),
    number("dropped", NOTHING),
    number("channels"),
    number("consumers"),
    number("signals", NOTHING),
    number("oldest ready"),
    Column("state", silent=NOTHING),
)
CHANNEL_COLUMNS = (
    Column("channel"),
    number("ready"),
    number("scheduled", NOTHING),
    number("leased"),
    number("limit", NOTHING),
    number("rate", NOTHING),
    number("weight", frozenset({"1"})),
    number("backlog", NOTHING),
    number("dead", NOTHING),
    number("dropped", NOTHING),
    number("oldest ready"),
    Column("state", silent=NOTHING),
)


def age(since: datetime | None, now: datetime) -> timedelta | None:
    """How long ago, never negative."""
    return max(now - since, now - now) if since else None


def queue_row(stats: QueueStats, now: datetime) -> list[Text]:
    """A queue as it stands in the table of queues."""
    return [
        cell(stats.queue, "bold"),
        cell(stats.ready),
        cell(stats.scheduled),
        cell(stats.leased),
        cell(stats.max_concurrency),
        cell(stats.dead, "red" if stats.dead else ""),
        cell(stats.dropped),
        cell(stats.channels),
        cell(stats.consumers),
        cell(stats.signals),
        cell(age(stats.oldest_ready_at, now)),
        state(stats.paused_at),
    ]


def channel_row(stats: ChannelStats, now: datetime) -> list[Text]:
    """A channel as it stands in the table of channels."""
    backlog = f"{stats.backlog:,}/{stats.max_backlog:,}" if stats.max_backlog else None
    limit = f"{stats.current_concurrency:,}/{stats.max_concurrency:,}" if stats.max_concurrency else None
    return [
        cell(stats.channel, "bold"),
        cell(stats.ready),
        cell(stats.scheduled),
        cell(stats.leased),
        cell(limit),
        cell(rate_words(stats.release_interval)),
        cell(stats.weight),
        cell(backlog),
        cell(stats.dead, "red" if stats.dead else ""),
        cell(stats.dropped),
        cell(age(stats.oldest_ready_at, now)),
        state(stats.paused_at),
    ]


def state(paused_at: datetime | None) -> Text:
    """Whether it is paused, in a word."""
    return Text("paused", style="yellow") if paused_at else Text("")


def queue_document(stats: QueueStats, now: datetime) -> dict[str, object]:
    """A queue for programs."""
    return asdict(stats) | {"oldest_ready_seconds": age(stats.oldest_ready_at, now)}


def channel_document(stats: ChannelStats, now: datetime) -> dict[str, object]:
    """A channel for programs."""
    document = asdict(stats)
    document["release_interval_seconds"] = document.pop("release_interval")
    return document | {"oldest_ready_seconds": age(stats.oldest_ready_at, now)}
