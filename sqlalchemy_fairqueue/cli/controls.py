"""``pause``, ``resume`` and ``cancel``: interventions in a queue that is served."""

# Annotations are read when the program starts, so that they must not be postponed.
from typing import Annotated

import typer
from rich.text import Text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.cli.errors import ExitStatus, not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import channel_not_found, open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import Column, number_column, text_table

Channel = Annotated[
    str | None, typer.Argument(metavar="CHANNEL", help="One channel. Default: the whole queue.", show_default=False)
]
AllQueues = Annotated[bool, typer.Option("--all-queues", help="The channel in every queue of the schema.")]


def pause(
    options: Options,
    *,
    channel: Channel = None,
    new: Annotated[bool, typer.Option("--new", help="Make the channel if it does not exist.")] = False,
    all_queues: AllQueues = False,
) -> Result:
    """Stop serving a queue, or one channel of it.

    Messages can be enqueued meanwhile, and consumers keep the messages that they have leased. It takes effect on the
    next dequeue. With --all-queues it stops a tenant everywhere, in an incident.
    """
    if all_queues:
        return _set_paused_everywhere(options, channel, paused=True, new=new)
    return _set_paused(options, channel, paused=True, new=new)


def resume(options: Options, *, channel: Channel = None, all_queues: AllQueues = False) -> Result:
    """Serve a paused queue or channel again."""
    if all_queues:
        return _set_paused_everywhere(options, channel, paused=False)
    return _set_paused(options, channel, paused=False)


def _set_paused_everywhere(options: Options, channel: str | None, *, paused: bool, new: bool = False) -> Result:
    if channel is None:
        raise usage_error("--all-queues needs a channel; name it, or give --queue to pause or resume a whole queue")
    if options.queue:
        raise usage_error("--all-queues and --queue are given; give one of them")
    with open_installation(options) as installation:
        changed = {}
        for name in installation.queue_names():
            queue = installation.queue(name)
            found = queue.channels(installation.engine, channel=channel)
            if not found and not new:
                continue
            changed[name] = (bool(found) and found[0].paused_at is not None) is not paused
            if changed[name] and paused:
                queue.pause(installation.engine, channel, new=new)
            elif changed[name]:
                queue.resume(installation.engine, channel)
        if not changed:
            raise not_found_error(f"no queue of schema {installation.schema!r} has a channel {channel!r}")
    state = "paused" if paused else "running"
    lines = [
        Text(f"channel {channel!r} of queue {name!r} " + (f"is {state} now" if done else f"was {state} already"))
        for name, done in changed.items()
    ]
    queues = [{"queue": name, "changed": done} for name, done in changed.items()]
    return Result({"channel": channel, "paused": paused, "queues": queues}, tuple(lines))


def _set_paused(options: Options, channel: str | None, *, paused: bool, new: bool = False) -> Result:
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=new)
        since = None
        if channel is None:
            since = queue.stats(installation.engine).paused_at
        elif found := queue.channels(installation.engine, channel=channel):
            since = found[0].paused_at
        elif not new:
            raise channel_not_found(queue, channel)
        changed = (since is not None) is not paused
        if changed and paused:
            queue.pause(installation.engine, channel, new=new)
        elif changed:
            queue.resume(installation.engine, channel)
    what = f"queue {queue.name!r}" if channel is None else f"channel {channel!r} of queue {queue.name!r}"
    state = "paused" if paused else "running"
    return Result(
        {"queue": queue.name, "channel": channel, "paused": paused, "changed": changed},
        (Text(f"{what} is {state} now" if changed else f"{what} was {state} already"),),
    )


_OUTCOMES = {
    "cancelled": "withdrawn",
    "leased": "a consumer has it: its worker is told, and it is not delivered again",
    "missing": "not there: done, dead, withdrawn before, or of another queue",
}


def cancel(
    options: Options, *, ids: Annotated[list[int], typer.Argument(metavar="ID...", min=1, show_default=False)]
) -> Result:
    """Withdraw messages that are not delivered yet; the workers of delivered ones are told to stop.

    The exit status is 1 when one is not there.
    """
    with open_installation(options) as installation:
        queue = installation.single_queue()
        with Session(installation.engine) as session, session.begin():
            receipts = {message_id: queue.cancel(session, message_id) for message_id in ids}
    outcomes = {message_id: str(receipt.outcome) for message_id, receipt in receipts.items()}
    rows = [(str(message_id), _OUTCOMES[outcome]) for message_id, outcome in outcomes.items()]
    return Result(
        {
            "queue": queue.name,
            "messages": [{"message_id": message_id, "outcome": outcome} for message_id, outcome in outcomes.items()],
        },
        (text_table((number_column("id"), Column("outcome")), rows),),
        ExitStatus.FOUND if "missing" in outcomes.values() else ExitStatus.OK,
    )
