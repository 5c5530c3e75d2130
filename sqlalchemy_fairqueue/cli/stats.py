"""``stats`` and ``channels``: counts of queues and channels, as tables and as documents."""

# Annotations are read when the program starts, so that they must not be postponed.
import shlex
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.installation import channel_not_found, open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.policies import rate_document
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, cell, number_column, text_table
from sqlalchemy_fairqueue.cli.waits import wait_cells, wait_document
from sqlalchemy_fairqueue.database.engines import run
from sqlalchemy_fairqueue.database.stats import stats_by_queue
from sqlalchemy_fairqueue.figures import age, channel_waits
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.reports import ChannelStats, QueueStats

MAX_CHANNELS = 100_000
"""Most channels that one call of the library returns."""

QUEUE_COLUMNS = (
    Column("queue"),
    number_column("ready"),
    number_column("deliverable"),
    number_column("paused", BLANK),
    number_column("limited", BLANK),
    number_column("scheduled", BLANK),
    number_column("held", BLANK),
    number_column("leased"),
    number_column("limit", BLANK),
    number_column("rate", BLANK),
    number_column("dead", BLANK),
    number_column("dropped", BLANK),
    number_column("channels"),
    number_column("consumers"),
    number_column("signals", BLANK),
    number_column("served cost", BLANK),
    number_column("oldest ready"),
    Column("state", blank=BLANK),
)
CHANNEL_COLUMNS = (
    Column("channel"),
    number_column("ready"),
    number_column("deliverable"),
    number_column("paused", BLANK),
    number_column("limited", BLANK),
    number_column("scheduled", BLANK),
    number_column("held", BLANK),
    number_column("leased"),
    number_column("limit", BLANK),
    number_column("rate", BLANK),
    number_column("weight", frozenset({"1"})),
    number_column("backlog", BLANK),
    number_column("dead", BLANK),
    number_column("dropped", BLANK),
    number_column("served cost", BLANK),
    number_column("oldest ready"),
    Column("waits for", blank=BLANK),
    Column("which has", blank=BLANK),
    Column("plan", blank=BLANK),
    Column("state", blank=BLANK),
)


def queue_row(stats: QueueStats, now: datetime) -> list[Text]:
    """A queue as a row of the table of queues."""
    return [
        cell(stats.queue, "bold"),
        cell(stats.ready),
        cell(stats.deliverable),
        cell(stats.paused),
        cell(stats.limited),
        cell(stats.scheduled),
        cell(stats.held),
        cell(stats.leased),
        cell(stats.max_concurrency),
        cell(stats.rate and stats.rate.per_time()),
        cell(stats.dead, "red" if stats.dead else ""),
        cell(stats.dropped),
        cell(stats.channels),
        cell(stats.consumers),
        cell(stats.signals),
        cell(stats.served_cost or None),
        cell(age(stats.oldest_ready_at, now)),
        paused_text(stats.paused_at),
    ]


def channel_row(stats: ChannelStats, now: datetime) -> list[Text]:
    """A channel as a row of the table of channels."""
    backlog = f"{stats.backlog:,}/{stats.max_backlog:,}" if stats.max_backlog else None
    limit = f"{stats.current_concurrency:,}/{stats.max_concurrency:,}" if stats.max_concurrency else None
    return [
        cell(stats.channel, "bold"),
        cell(stats.ready),
        cell(stats.deliverable),
        cell(stats.paused),
        cell(stats.limited),
        cell(stats.scheduled),
        cell(stats.held),
        cell(stats.leased),
        cell(limit),
        cell(stats.rate and stats.rate.per_time()),
        cell(stats.weight),
        cell(backlog),
        cell(stats.dead, "red" if stats.dead else ""),
        cell(stats.dropped),
        cell(stats.served_cost or None),
        cell(age(stats.oldest_ready_at, now)),
        *map(cell, wait_cells(stats.wait)),
        cell(stats.plan),
        Text("set aside", style="red") if stats.problem else paused_text(stats.paused_at),
    ]


def paused_text(paused_at: datetime | None) -> Text:
    """``paused``, or nothing."""
    return Text("paused", style="yellow") if paused_at else Text("")


def queue_document(stats: QueueStats, now: datetime) -> dict[str, object]:
    """A queue as a JSON document."""
    return asdict(stats) | {"rate": rate_document(stats.rate), "oldest_ready_seconds": age(stats.oldest_ready_at, now)}


def channel_document(stats: ChannelStats, now: datetime) -> dict[str, object]:
    """A channel as a JSON document."""
    derived = {"rate": rate_document(stats.rate), "oldest_ready_seconds": age(stats.oldest_ready_at, now)}
    document = asdict(stats) | derived | wait_document(stats.wait)
    del document["wait"]
    return document


def stats(options: Options) -> Result:
    """Show the counts of queues: ready, deliverable, scheduled, leased and dead messages, channels, consumers."""
    with open_installation(options) as installation:
        queues = installation.queues()
        # One connection for all: to open one may take long.
        names = [queue.name for queue in queues]
        counts = run(installation.engine, partial(stats_by_queue, schema=installation.schema, queues=names))
        found = [counts[name] for name in names]
        now = installation.now()
        schema = installation.schema
    rows = [queue_row(queue, now) for queue in found]
    table = text_table(QUEUE_COLUMNS, rows) if rows else Text(f"schema {schema!r} has no queue yet")
    return Result({"queues": [queue_document(queue, now) for queue in found]}, (table,))


def channels(
    options: Options,
    *,
    channel: Annotated[
        str | None, typer.Argument(metavar="CHANNEL", help="Only this one. Default: all, by name.", show_default=False)
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MAX_CHANNELS - 1, metavar="N", help="At most so many a queue.")
    ] = 100,
    after: Annotated[
        str | None, typer.Option("--after", metavar="NAME", help="The page after this channel, of one queue.")
    ] = None,
    busy: Annotated[bool, typer.Option("--busy", help="Only channels with messages.")] = False,
) -> Result:
    """Show the counts of channels, with their policies, and why each waits."""
    documents: list[dict[str, object]] = []
    parts: list[Any] = []
    more = False
    with open_installation(options) as installation:
        queues = installation.queues() if after is None and channel is None else [installation.single_queue()]
        now = installation.now()
        # One more than is shown, to know whether there are more.
        pages = run(
            installation.engine,
            lambda connection: [
                (found := one.channels(connection, channel, limit=limit + 1, after=after, busy=busy),
                 channel_waits(connection, one, found[:limit], now))
                for one in queues
            ],
        )  # fmt: skip
        for queue, (found, page) in zip(queues, pages, strict=True):
            if channel is not None and not found and not busy:
                raise channel_not_found(queue, channel)
            rest = found[limit:]
            documents += [channel_document(one, now) for one in page]
            more = more or bool(rest)
            if len(queues) > 1:
                parts.append(Text(f"queue {clean(queue.name)}", style="bold underline"))
            rows = [channel_row(one, now) for one in page]
            parts.append(
                text_table(CHANNEL_COLUMNS, rows) if rows else Text("no busy channels" if busy else "no channels")
            )
            if rest:
                parts.append(
                    Text(f"there are more: --after {clean(shlex.quote(page[-1].channel))}, or a higher --limit")
                )
        if not queues:
            parts.append(Text(f"schema {installation.schema!r} has no queue yet"))
    return Result({"channels": documents, "more": more}, tuple(parts))
