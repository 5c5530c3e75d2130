"""``pause`` and ``resume``: a queue, or one of its channels."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.sites import no_channel, site_of

Channel = Annotated[
    str | None, typer.Argument(metavar="CHANNEL", help="One channel. Default: the whole queue.", show_default=False)
]


def pause(options: Options, *, channel: Channel = None) -> Answer:
    """Stop serving a queue, or one channel of it.

    Messages can be enqueued meanwhile; what consumers have in their hands is not touched. It takes effect on the next
    dequeue.
    """
    return _switch(options, channel, paused=True)


def resume(options: Options, *, channel: Channel = None) -> Answer:
    """Serve a paused queue or channel again."""
    return _switch(options, channel, paused=False)


def _switch(options: Options, channel: str | None, *, paused: bool) -> Answer:
    with site_of(options) as site:
        queue = site.one()
        if channel is None:
            since = queue.stats(site.engine).paused_at
        elif found := queue.channels(site.engine, channel=channel):
            since = found[0].paused_at
        else:
            raise no_channel(queue, channel)
        changed = (since is not None) is not paused
        if changed:
            (queue.pause if paused else queue.resume)(site.engine, channel=channel)
    what = f"queue {queue.name!r}" if channel is None else f"channel {channel!r} of queue {queue.name!r}"
    state = "paused" if paused else "running"
    return Answer(
        {"queue": queue.name, "channel": channel, "paused": paused, "changed": changed},
        (Text(f"{what} is {state} now" if changed else f"{what} was {state} already"),),
    )
