"""``trend``: a queue or a channel over the last hour or day."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from sqlalchemy_fairqueue.cli.installation import channel_not_found, open_queue
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, number_column
from sqlalchemy_fairqueue.values.reports import TrendPoint

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

    Workers keep a sample each minute, for a day; of channels, of the 20 with the longest backlogs. What was served, and
    the times of handlers, are known of queues that record their history; of others, failed are the messages that died.

    Options:
        channel: This channel. Default: the queue.
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
