"""``schedules``: schedules listed, added, paused, resumed, run and removed."""

# Annotations are read when the program starts, so that they must not be postponed.
import json
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.confirmation import confirm
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, open_installation
from sqlalchemy_fairqueue.cli.options import Options, Yes, option_parser
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, number_column, text_table
from sqlalchemy_fairqueue.errors import UnknownSchedule
from sqlalchemy_fairqueue.formats import format_duration, parse_duration
from sqlalchemy_fairqueue.values.schedules import ScheduleInfo

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
OwnChannel = Annotated[str, typer.Option("--channel", metavar="NAME", help="The channel that it belongs to.")]


class CatchUpChoice(StrEnum):
    """The treatment of late slots."""

    SKIP = "skip"
    LAST = "last"
    ALL = "all"


_COLUMNS = (
    Column("channel"),
    Column("name"),
    Column("when"),
    Column("catch up"),
    Column("kind"),
    Column("state"),
    number_column("next (UTC)"),
    number_column("last slot (UTC)", blank=BLANK),
    number_column("message", blank=BLANK),
    Column("problem", blank=BLANK),
)


def list_schedules(
    options: Options,
    *,
    channel: Annotated[str | None, typer.Option("--channel", metavar="NAME", help="Only of this channel.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=99_999, metavar="N", help="At most so many.")] = 1000,
) -> Result:
    """List the schedules of a queue, by channel and name."""
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        found = queue.schedules.list(installation.engine, channel=channel, limit=limit + 1)
    page, more = found[:limit], len(found) > limit
    rows = [
        (one.channel, one.name, _when(one), one.catch_up, one.kind, one.state, one.next_run_at, one.last_slot_at,
         None if one.last_message_id is None else str(one.last_message_id), one.problem)
        for one in page
    ]  # fmt: skip
    parts: list[Any] = [Text(f"queue {queue.name!r} has no schedules" + ("" if channel is None else " there"))]
    if page:
        parts = [text_table(_COLUMNS, rows)]
    if more:
        parts.append(Text(f"there are more: --limit {limit * 10}"))
    document = {"queue": queue.name, "schedules": [schedule_document(one) for one in page], "more": more}
    return Result(document, tuple(parts))


def set_schedule(
    options: Options,
    *,
    name: Name,
    channel: OwnChannel,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPRESSION", help="Five fields, like '0 3 * * *'.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Of the expression. Default: UTC.")
    ] = None,
    every: Annotated[
        timedelta | None,
        typer.Option("--every", metavar="DURATION", parser=option_parser(parse_duration), help="Instead of --cron."),
    ] = None,
    catch_up: Annotated[CatchUpChoice, typer.Option("--catch-up", help="What becomes of late slots.")] = (
        CatchUpChoice.LAST
    ),
    jitter: Annotated[
        timedelta,
        typer.Option(
            "--jitter",
            metavar="DURATION",
            parser=option_parser(parse_duration),
            help="Most time from a slot to its message.",
            show_default="0s",
        ),
    ] = timedelta(),
    kind: Annotated[str, typer.Option("--kind", metavar="NAME", help="The kind of its messages.")] = "default",
    payload: Annotated[
        str, typer.Option("--payload", metavar="JSON", help="The payload of its messages.", show_default="null")
    ] = "null",
) -> Result:
    """Add a schedule to a channel, or change the one of that name.

    The first slot is later than now. The payload goes through the codec of the application's queue if --app names one.
    """
    value = _json(payload)
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        queue.schedules.set(
            installation.engine,
            name,
            channel=channel,
            cron=cron,
            timezone=timezone,
            every=every,
            catch_up=catch_up.value,
            jitter=jitter,
            kind=kind,
            payload=value,
        )
        [made] = queue.schedules.list(installation.engine, channel=channel, name=name)
    return Result({"schedule": schedule_document(made)}, (Text(_next(made)),))


def pause_schedule(options: Options, *, name: Name, channel: OwnChannel) -> Result:
    """Stop the slots of a schedule. Those that come until it is resumed are passed over."""
    return _set_paused(options, name, channel, paused=True)


def resume_schedule(options: Options, *, name: Name, channel: OwnChannel) -> Result:
    """Go on with the slots of a paused schedule, from the first one after now."""
    return _set_paused(options, name, channel, paused=False)


def _set_paused(options: Options, name: str, channel: str, *, paused: bool) -> Result:
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        before = _schedule(installation, queue, channel, name)
        try:
            (queue.schedules.pause if paused else queue.schedules.resume)(installation.engine, name, channel=channel)
        except UnknownSchedule as error:
            raise not_found_error(str(error)) from error
        after = _schedule(installation, queue, channel, name)
    changed = before.state != after.state and (before.paused_at is not None) is not paused
    document = {"schedule": schedule_document(after), "changed": changed}
    return Result(document, (Text(_next(after) if changed else f"schedule {name!r} was so already: {after.state}"),))


def run_schedule(options: Options, *, name: Name, channel: OwnChannel) -> Result:
    """Enqueue the message of a schedule at once, beside its slots, also while it is paused."""
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        try:
            message_id = queue.schedules.run(installation.engine, name, channel=channel)
        except UnknownSchedule as error:
            raise not_found_error(str(error)) from error
    said = f"message {message_id} is enqueued" if message_id else f"channel {channel!r} is full, and its policy drops"
    return Result({"queue": queue.name, "channel": channel, "name": name, "message_id": message_id}, (Text(said),))


def remove_schedule(options: Options, *, name: Name, channel: OwnChannel, yes: Yes = False) -> Result:
    """Remove a schedule. Its messages stay. One that code declares comes back when a worker of it starts."""
    with open_installation(options) as installation:
        queue = installation.single_queue(may_be_new=True)
        found = _schedule(installation, queue, channel, name)
        again = ", which its code makes again when a worker starts" if found.in_code else ""
        confirm(f"remove schedule {name!r} of channel {channel!r} of queue {queue.name!r}{again}?", yes=yes)
        queue.schedules.remove(installation.engine, name, channel=channel)
    said = f"schedule {name!r} of channel {channel!r} of queue {queue.name!r} is removed{again}"
    return Result({"queue": queue.name, "channel": channel, "name": name, "in_code": found.in_code}, (Text(said),))


def schedule_document(one: ScheduleInfo) -> dict[str, Any]:
    """A schedule as a JSON document."""
    return {
        "queue": one.queue,
        "channel": one.channel,
        "name": one.name,
        "cron": one.cron,
        "timezone": one.timezone,
        "every_seconds": None if one.every is None else one.every.total_seconds(),
        "catch_up": one.catch_up,
        "jitter_seconds": one.jitter.total_seconds(),
        "kind": one.kind,
        "content_size": one.content_size,
        "max_attempts": one.max_attempts,
        "ordering_key": one.ordering_key,
        "in_code": one.in_code,
        "state": one.state,
        "next_run_at": one.next_run_at,
        "paused_at": one.paused_at,
        "last_slot_at": one.last_slot_at,
        "last_run_at": one.last_run_at,
        "last_message_id": one.last_message_id,
        "problem": one.problem,
        "problem_at": one.problem_at,
        "created_at": one.created_at,
        "changed_at": one.changed_at,
    }


def _schedule(installation: Installation, queue: Queue, channel: str, name: str) -> ScheduleInfo:
    found = queue.schedules.list(installation.engine, channel=channel, name=name)
    if not found:
        raise not_found_error(
            f"channel {channel!r} of queue {queue.name!r} has no schedule {name!r}; "
            "'fairqueue schedules list' shows all"
        )
    return found[0]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise usage_error(f"--payload {text!r:.80} is no JSON: {error}") from error


def _when(one: ScheduleInfo) -> str:
    if one.every is not None:
        return f"every {format_duration(one.every)}"
    return f"{one.cron} {one.timezone}"


def _next(one: ScheduleInfo) -> str:
    what = f"schedule {one.name!r} of channel {one.channel!r} of queue {one.queue!r}"
    if one.paused_at is not None:
        return f"{what} is paused"
    return f"{what}: next at {'unknown' if one.next_run_at is None else one.next_run_at.isoformat(sep=' ')}"
