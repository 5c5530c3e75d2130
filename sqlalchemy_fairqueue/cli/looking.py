"""``stats`` and ``channels``: how queues and channels stand now."""

# Annotations are read when the program starts, so that they must not be postponed.
import shlex
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.rows import (
    CHANNEL_COLUMNS,
    QUEUE_COLUMNS,
    channel_document,
    channel_row,
    queue_document,
    queue_row,
)
from sqlalchemy_fairqueue.cli.sites import no_channel, site_of
from sqlalchemy_fairqueue.cli.tables import listing
from sqlalchemy_fairqueue.engines import run
from sqlalchemy_fairqueue.errors import clean

MOST_CHANNELS = 100_000


def stats(options: Options) -> Answer:
    """Show how queues stand: what is ready, scheduled, out and dead, and who works on it."""
    with site_of(options) as site:
        named = site.queues()
        # One connection for all: a server may take long to give one.
        found = run(site.engine, lambda connection: [queue.stats(connection) for queue in named])
        now = site.now()
        schema = site.schema
    rows = [queue_row(queue, now) for queue in found]
    shown = listing(QUEUE_COLUMNS, rows) if rows else Text(f"schema {schema!r} has no queue yet")
    return Answer({"queues": [queue_document(queue, now) for queue in found]}, (shown,))


def channels(
    options: Options,
    *,
    channel: Annotated[
        str | None, typer.Argument(metavar="CHANNEL", help="Only this one. Default: all, by name.", show_default=False)
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MOST_CHANNELS - 1, metavar="N", help="At most so many a queue.")
    ] = 100,
    after: Annotated[
        str | None, typer.Option("--after", metavar="NAME", help="The page after this channel, of one queue.")
    ] = None,
) -> Answer:
    """Show how channels stand, with their policies."""
    documents: list[dict[str, object]] = []
    parts: list[Any] = []
    more = False
    with site_of(options) as site:
        queues = site.queues() if after is None and channel is None else [site.one()]
        now = site.now()
        # One more than is shown tells whether there are more.
        pages = run(
            site.engine,
            lambda connection: [one.channels(connection, channel, limit=limit + 1, after=after) for one in queues],
        )
        for queue, found in zip(queues, pages, strict=True):
            if channel is not None and not found:
                raise no_channel(queue, channel)
            page, rest = found[:limit], found[limit:]
            documents += [channel_document(one, now) for one in page]
            more = more or bool(rest)
            if len(queues) > 1:
                parts.append(Text(f"queue {clean(queue.name)}", style="bold underline"))
            rows = [channel_row(one, now) for one in page]
            parts.append(listing(CHANNEL_COLUMNS, rows) if rows else Text("no channels"))
            if rest:
                parts.append(
                    Text(f"there are more: --after {clean(shlex.quote(page[-1].channel))}, or a higher --limit")
                )
        if not queues:
            parts.append(Text(f"schema {site.schema!r} has no queue yet"))
    return Answer({"channels": documents, "more": more}, tuple(parts))
