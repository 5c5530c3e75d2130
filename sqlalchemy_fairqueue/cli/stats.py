"""``stats``, ``channels`` and ``trend``: counts of queues and channels now and over time, and why channels wait."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import shlex
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

from rich.text import Text
from sqlalchemy import Connection

from sqlalchemy_fairqueue.cli.errors import not_found_error
from sqlalchemy_fairqueue.cli.installation import channel_not_found, open_installation, open_queue
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.policies import plain
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, bold, number_column
from sqlalchemy_fairqueue.database.engines import run
from sqlalchemy_fairqueue.database.stats import read_clock, stats_by_queue
from sqlalchemy_fairqueue.doctor.queues import recent_pasts, summary_of
from sqlalchemy_fairqueue.figures.queues import age, channel_waits
from sqlalchemy_fairqueue.formats import format_duration, format_longest
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.reports import ChannelStats, QueueStats, Reason, TrendPoint, Wait

_MAX_CHANNELS = 100_000
"""The most channels that one call of the library returns."""


def _red(count: int) -> str:
    return "red" if count else ""


_COUNTS = (
    *(number_column(name) for name in ("ready", "deliverable")),
    *(number_column(name, blank=BLANK) for name in ("paused", "limited", "scheduled", "held")),
    number_column("leased"),
)
_RATE = number_column("rate", get=lambda one: one.rate and one.rate.per_time(), blank=BLANK)
_DEAD = (number_column("dead", blank=BLANK, style=_red), number_column("dropped", blank=BLANK))
_SERVED_COST = number_column("served cost", get=lambda one: one.served_cost or None, blank=BLANK)


def oldest_column(now: datetime) -> Column:
    return number_column("oldest ready", "oldest_ready_seconds", get=lambda one: age(one.oldest_ready_at, now))


def wait_columns(now: datetime) -> tuple[Column, Column]:
    return (
        Column("waits for", None, get=lambda one: one.wait and reason_text(one.wait, now), blank=BLANK),
        Column("which has", None, get=lambda one: one.wait and takers_text(one.wait, now, one.channel), blank=BLANK),
    )


def _queues(now: datetime) -> Table:
    return Table(
        Column("queue", style="bold"),
        *_COUNTS,
        number_column("limit", get=lambda one: one.max_concurrency, blank=BLANK),
        _RATE,
        *_DEAD,
        number_column("channels"),
        number_column("consumers"),
        number_column("signals", blank=BLANK),
        _SERVED_COST,
        oldest_column(now),
        Column("state", get=lambda one: paused_text(one.paused_at, now), blank=BLANK),
    )


def _channels(now: datetime) -> Table:
    return Table(
        Column("channel", style="bold"),
        *_COUNTS,
        number_column("limit", get=lambda one: _part(one.current_concurrency, one.max_concurrency), blank=BLANK),
        _RATE,
        number_column("weight", blank=frozenset({"1"})),
        number_column("backlog", get=lambda one: _part(one.backlog, one.max_backlog), blank=BLANK),
        *_DEAD,
        _SERVED_COST,
        oldest_column(now),
        *wait_columns(now),
        Column("plan", blank=BLANK),
        Column("state", get=lambda one: _state(one, now), blank=BLANK),
    )


def _part(count: int, most: int | None) -> str | None:
    return f"{count:,}/{most:,}" if most else None


def _state(one: ChannelStats, now: datetime) -> Text:
    return Text("set aside", style="red") if one.problem else paused_text(one.paused_at, now)


def paused_text(paused_at: datetime | None, now: datetime) -> Text:
    since = age(paused_at, now)
    return Text("") if since is None else Text(f"paused for {format_duration(since)}", style="yellow")


def reason_text(wait: Wait, now: datetime) -> str:
    if wait.behind is not None:
        return f"behind message {wait.behind} of its {wait.reason}"
    words = str(wait.reason) if wait.limit is None else f"{wait.reason} {wait.limit}"
    what = "due" if wait.reason is Reason.SCHEDULED else "next"
    return f"{words}, {what} in {format_duration(wait.until - now)}" if wait.until and wait.until > now else words


def takers_text(wait: Wait, now: datetime, channel: str) -> str | None:
    queues = [f"queue {one.queue}: {one.leased:,}" for one in wait.queues if one.leased]
    channels = [
        f"{one.channel}{'' if one.weight == 1 else f' (weight {one.weight:,})'}: {one.leased:,}" for one in wait.takers
    ]
    longest = [] if wait.longest_out is None else [format_longest(wait.longest_out, now, channel)]
    return "; ".join([*filter(None, [", ".join(queues + channels)]), *longest]) or None


def wait_document(wait: Wait | None) -> dict[str, Any]:
    return {
        "waits_for": str(wait.reason) if wait else None,
        "waits_until": wait.until if wait else None,
        "shared_limit": wait.limit if wait else None,
        "taken_by": [asdict(one) for one in wait.takers] if wait else [],
        "taken_by_queues": [asdict(one) for one in wait.queues] if wait else [],
        "limit_used": wait.used if wait else None,
        "limit_most": wait.most if wait else None,
        "longest_out": asdict(wait.longest_out) if wait and wait.longest_out else None,
    }


def _document(one: QueueStats | ChannelStats, now: datetime) -> dict[str, Any]:
    return asdict(one) | {"rate": plain(one.rate), "oldest_ready_seconds": age(one.oldest_ready_at, now)}


def _channel_document(one: ChannelStats, now: datetime) -> dict[str, Any]:
    document = _document(one, now) | wait_document(one.wait)
    del document["wait"]
    return document


def stats(options: Options) -> Result:
    """Show the counts of queues: ready, deliverable, scheduled, leased and dead messages, channels, consumers.

    The first line tells the worst problem of the queues, or, if there is none, how many messages wait.
    """
    with open_installation(options) as installation:
        names, schema = [queue.name for queue in installation.queues()], installation.schema

        def read(connection: Connection) -> tuple[list[QueueStats], datetime, str]:
            counts = stats_by_queue(connection, schema, names)
            found, now = [counts[name] for name in names], read_clock(connection, schema)
            return found, now, summary_of(found, now, recent_pasts(connection, schema, found, now))

        # All is read on one connection, since opening one may take long.
        found, now, sentence = run(installation.engine, read)
    document = {"summary": sentence, "queues": [_document(queue, now) for queue in found]}
    headline = (bold(sentence),) if found else ()
    return Result(document, (*headline, *_queues(now).listing(found, f"schema {schema!r} has no queue yet")))


def channels(
    options: Options,
    channel: Annotated[str | None, Spec(metavar="CHANNEL")] = None,
    *,
    limit: Annotated[int, Spec(min=1, max=_MAX_CHANNELS - 1)] = 100,
    after: str | None = None,
    busy: bool = False,
) -> Result:
    """Show the counts of channels, with their policies, and why each waits.

    Options:
        channel: Only this channel, in each queue that has it. Default: all channels, by name.
        limit: Show at most this many channels of each queue.
        after: The last channel of the page before, to show the next page of one queue.
        busy: Only channels with messages.
    """
    documents: list[dict[str, object]] = []
    parts: list[Any] = []
    more = False
    with open_installation(options) as installation:
        queues = installation.queues() if after is None else [installation.single_queue()]
        now = installation.now()
        # One channel more than is shown tells whether there are further ones.
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
                if len(queues) == 1:
                    raise channel_not_found(queue, channel)
                continue
            documents += [_channel_document(one, now) for one in page]
            if len(queues) > 1:
                parts.append(Text(f"queue {clean(queue.name)}", style="bold underline"))
            hint = None
            if found[limit:]:
                more = True
                hint = f"there are more: --after {clean(shlex.quote(page[-1].channel))}, or a higher --limit"
            parts += _channels(now).listing(
                page, f"queue {queue.name!r} has no {'busy ' if busy else ''}channels", hint
            )
    if channel is not None and not parts:
        raise not_found_error(f"no queue of schema {installation.schema!r} has a channel {channel!r}")
    if not queues:
        parts.append(f"schema {installation.schema!r} has no queue yet")
    return Result({"channels": documents, "more": more}, tuple(parts))


_WIDTH = 20
_HANDLERS = Table(
    Column("kind", style="bold"),
    number_column("attempts"),
    number_column("half within", "half_within_seconds", get=lambda one: one.within(0.5)),
    number_column("95% within", "95_percent_within_seconds", get=lambda one: one.within(0.95)),
)


def _points(most: int) -> Table:
    def bar(point: TrendPoint) -> str | None:
        return None if point.ready is None else "#" * round(_WIDTH * point.ready / most)

    return Table(
        number_column("at (UTC)", "at"),
        number_column("ready"),
        number_column("oldest wait", "oldest_wait_seconds", get=lambda one: one.oldest_wait),
        number_column("served", blank=BLANK),
        number_column("failed", blank=BLANK),
        Column("backlog", None, get=bar, blank=BLANK),
    )


def trend(
    options: Options,
    channel: Annotated[str | None, Spec(metavar="[CHANNEL]")] = None,
    *,
    over: Annotated[timedelta, Spec(shown="1h")] = timedelta(hours=1),
) -> Result:
    """Show a queue or a channel over time: backlog, oldest wait, served, failed, and the times of handlers.

    Each minute workers sample the queue and up to 20 channels, the longest backlogs first, and keep this for a day.
    Without a history, 'served' and the times of handlers are unknown, and 'failed' is the number of messages that died.

    Options:
        channel: The channel to show. Default: the queue.
        over: How far back, a minute to a day: 1h, 1d.
    """
    with open_queue(options) as (installation, queue):
        found = queue.admin.trend(installation.engine, channel=channel, over=over)
        if channel is not None and not queue.channels(installation.engine, channel):
            raise channel_not_found(queue, channel)
    table = _points(max([point.ready or 0 for point in found.points] + [1]))
    document = {
        "queue": found.queue,
        "channel": found.channel,
        "step_seconds": found.step,
        "points": table.documents(found.points),
        "handlers": [_HANDLERS.document(one) | asdict(one) for one in found.handlers],
    }
    kept = [point for point in found.points if point.ready is not None]
    parts = table.listing(kept, "no worker has kept a sample of that time")
    return Result(document, (*parts, *([_HANDLERS.screen(found.handlers)] if found.handlers else [])))
