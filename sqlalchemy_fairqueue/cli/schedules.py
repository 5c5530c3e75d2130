"""``schedules``: list, show, set, pause, resume, run and remove schedules."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

from sqlalchemy import Connection

from sqlalchemy_fairqueue import InvalidArgument, Queue
from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import Installation, acting, in_queue, open_queue
from sqlalchemy_fairqueue.cli.options import By, Options, Page, Spec, Yes
from sqlalchemy_fairqueue.cli.output import Result, confirm
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, number_column
from sqlalchemy_fairqueue.doctor.findings import query
from sqlalchemy_fairqueue.errors import UnknownSchedule
from sqlalchemy_fairqueue.formats import format_duration, plural
from sqlalchemy_fairqueue.times import instant, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.schedules import ScheduleInfo, Timing, timing_of

_MOMENT = timedelta(microseconds=1)
_LATE = timedelta(minutes=1)
_MOST_SLOTS = 1000
"""The most slots of each state that are calculated: skipped, late, due."""

OwnChannel = Annotated[str, Spec(help="The channel that it belongs to.")]


class CatchUpChoice(StrEnum):
    """The treatment of late slots."""

    SKIP = "skip"
    LAST = "last"
    ALL = "all"


def _when(one: ScheduleInfo) -> str:
    return f"{one.cron} {one.timezone}" if one.every is None else f"every {format_duration(one.every)}"


_TABLE = Table(
    Column("", "queue"),
    *(Column(name) for name in ("channel", "name")),
    Column("when", None, get=_when),
    *(Column("", key) for key in ("cron", "timezone")),
    Column("", "every_seconds", get=lambda one: one.every),
    Column("catch up"),
    Column("", "jitter_seconds", get=lambda one: one.jitter),
    Column("kind"),
    *(Column("", key) for key in ("content_size", "max_attempts")),
    Column("ordering key", blank=BLANK),
    Column("", "in_code"),
    Column("state"),
    number_column("next (UTC)", "next_run_at"),
    Column("", "paused_at"),
    number_column("last slot (UTC)", "last_slot_at", blank=BLANK),
    Column("", "last_run_at"),
    number_column("message", "last_message_id", shown=str, blank=BLANK),
    Column("problem", blank=BLANK),
    *(Column("", key) for key in ("problem_at", "created_at", "changed_at")),
)


def list_schedules(options: Options, *, channel: str | None = None, limit: Page = 1000) -> Result:
    """List the schedules of a queue, sorted by channel and name.

    Options:
        channel: Only schedules of this channel.
    """
    with open_queue(options, may_be_new=True) as (installation, queue):
        found = queue.schedules.list(installation.engine, channel=channel, limit=limit + 1)
    page, more = found[:limit], len(found) > limit
    nothing = f"queue {queue.name!r} has no schedules" + ("" if channel is None else " there")
    document = {"queue": queue.name, "schedules": _TABLE.documents(page), "more": more}
    return Result(document, _TABLE.listing(page, nothing, f"there are more: --limit {limit * 10}" if more else None))


_SLOTS = Table(
    number_column("slot (UTC)", "slot_at"),
    Column("state"),
    number_column("run (UTC)", "ran_at", blank=BLANK),
    number_column("message", "message_id", shown=str, blank=BLANK),
)


def show_schedule(
    options: Options, name: str, *, channel: OwnChannel, limit: Annotated[int, Spec(min=1, max=1000)] = 5
) -> Result:
    """Show a schedule: the slots that were run or skipped, those that are late, and the next ones.

    Slots that were run are kept for a week. Only the owner of the tables may read them, so other roles see none.

    Options:
        limit: The most slots that were run, and the most future slots.
    """
    with open_queue(options, may_be_new=True) as (installation, queue):
        found = _schedule(installation, queue, channel, name)
        now = installation.now()
        ran = _ran(installation, found, limit)
    slots = _slots(found, ran, now, limit)
    document = {"schedule": _TABLE.document(found), "slots": slots, "ran_is_known": ran is not None}
    hidden = () if ran is not None else ("which slots were run, the owner of the tables may read",)
    return Result(document, (_TABLE.details(found), *_SLOTS.listing(slots, "the schedule has no slots"), *hidden))


def _ran(installation: Installation, one: ScheduleInfo, most: int) -> list[dict[str, Any]] | None:
    """Return at most *most* slots that were run, the newest first. Return None if the role may not read them."""
    tables = ["fq_schedule", "fq_schedule_slot"]
    with installation.engine.connect() as connection:
        readable = connection.execute(query("readable_tables"), {"schema": installation.schema, "tables": tables})
        if len(readable.all()) < len(tables):
            return None
        names = {"queue": one.queue, "channel": one.channel, "name": one.name, "most": most}
        rows = connection.execute(query("schedule_slots", installation.schema), names)
        return [
            {
                "slot_at": instant(row.slot_at), "state": "dropped" if row.message_id is None else "run",
                "ran_at": instant(row.ran_at), "message_id": row.message_id,
            }
            for row in rows
        ]  # fmt: skip


def _slots(one: ScheduleInfo, ran: list[dict[str, Any]] | None, now: datetime, most: int) -> list[dict[str, Any]]:
    """Return a schedule's slots, sorted by time: run, skipped, late and due slots, and at most *most* future slots.

    *ran* has the run slots, if known. A skipped slot is returned only if *ran* has an earlier slot. If this machine
    cannot read the schedule's cron expression or time zone, only the slots in *ran* are returned.
    """
    slots = {slot["slot_at"]: slot for slot in ran or ()}
    timing = _timing(one)
    if timing is None:
        return [slots[at] for at in sorted(slots)]
    left: list[tuple[str, datetime, datetime]] = []
    if slots:
        left.append(("skipped", min(slots), min(now, one.next_run_at or now)))
    if one.next_run_at is not None:
        left += [("late", one.next_run_at - _MOMENT, now - _LATE), ("due", one.next_run_at - _MOMENT, now + _MOMENT)]
    for state, after, until in left:
        for slot in islice(timing.after(instant_microseconds(after)), _MOST_SLOTS):
            if (at := instant(slot)) >= until:
                break
            slots.setdefault(at, {"slot_at": at, "state": state, "ran_at": None, "message_id": None})
    if one.next_run_at is not None:
        coming = timing.after(instant_microseconds(max(now, one.next_run_at - _MOMENT)))
        for at in map(instant, islice(coming, most)):
            slots[at] = {"slot_at": at, "state": "next", "ran_at": None, "message_id": None}
    return [slots[at] for at in sorted(slots)]


def _timing(one: ScheduleInfo) -> Timing | None:
    slot = one.next_run_at or one.last_slot_at
    if slot is None:
        return None
    every = None if one.every is None else microseconds(one.every)
    with suppress(InvalidArgument):
        return timing_of(
            one.cron, one.timezone, every, 0 if every is None else instant_microseconds(slot) % every - every
        )
    return None


def set_schedule(
    options: Options,
    name: str,
    *,
    channel: OwnChannel,
    cron: Annotated[str | None, Spec(metavar="EXPRESSION")] = None,
    timezone: Annotated[str | None, Spec(metavar="ZONE")] = None,
    every: timedelta | None = None,
    catch_up: CatchUpChoice = CatchUpChoice.LAST,
    jitter: Annotated[timedelta, Spec(shown="0s")] = timedelta(),
    kind: str = "default",
    payload: Annotated[str, Spec(metavar="JSON")] = "null",
    ordering_key: Annotated[str | None, Spec(metavar="KEY")] = None,
    by: By = None,
) -> Result:
    """Add a schedule to a channel, or replace its schedule of that name: options that are not given get their defaults.

    The first slot is later than now. The payload goes through the codec of the application's queue if --app names one.

    Options:
        cron: Five fields, like '0 3 * * *'.
        timezone: Time zone of the expression. Default: UTC.
        every: The interval between slots, instead of --cron.
        catch_up: What becomes of late slots.
        jitter: The most time by which a message is later than its slot.
        kind: The kind of its messages.
        payload: The payload of its messages.
        ordering_key: The ordering key of its messages.
    """
    value = _json(payload)
    with open_queue(options, may_be_new=True) as (installation, queue):
        with _acting(installation, queue, "set", by, channel=channel, name=name) as connection:
            before = queue.schedules.list(connection, channel=channel, name=name)
            queue.schedules.set(
                connection, name, channel=channel, cron=cron, timezone=timezone, every=every, catch_up=catch_up.value,
                jitter=jitter, kind=kind, payload=value, ordering_key=ordering_key,
            )  # fmt: skip
        made = _schedule(installation, queue, channel, name)
    return Result({"schedule": _TABLE.document(made)}, (_next(made), *_replaced(before, made)))


def _replaced(before: Iterable[ScheduleInfo], made: ScheduleInfo) -> Iterator[str]:
    """Yield a warning on --kind if the messages' kind changed, and one on --payload if the payload's size changed."""
    for one in before:  # the user may have left out an option, which then got its default
        if one.kind != made.kind:
            yield f"its kind is {made.kind!r}, before {one.kind!r}: --kind sets it"
        if one.content_size != made.content_size:
            size = plural(made.content_size, "byte")
            yield f"its payload has {size}, before {one.content_size:,}: --payload sets it"


def pause_schedule(options: Options, name: str, *, channel: OwnChannel, by: By = None) -> Result:
    """Pause a schedule. Slots that come until it is resumed are skipped."""
    return _set_paused(options, name, channel, by, paused=True)


def resume_schedule(options: Options, name: str, *, channel: OwnChannel, by: By = None) -> Result:
    """Resume a paused schedule with its first slot after now."""
    return _set_paused(options, name, channel, by, paused=False)


def _set_paused(options: Options, name: str, channel: str, by: str | None, *, paused: bool) -> Result:
    with open_queue(options, may_be_new=True) as (installation, queue):
        before = _schedule(installation, queue, channel, name)
        what, verb = ("pause", queue.schedules.pause) if paused else ("resume", queue.schedules.resume)
        with _acting(installation, queue, what, by, channel=channel, name=name) as connection:
            verb(connection, name, channel=channel)
        after = _schedule(installation, queue, channel, name)
    changed = before.state != after.state and (before.paused_at is not None) is not paused
    said = _next(after) if changed else f"schedule {name!r} was so already: {after.state}"
    return Result({"schedule": _TABLE.document(after), "changed": changed}, (said,))


def run_schedule(options: Options, name: str, *, channel: OwnChannel, by: By = None) -> Result:
    """Enqueue the message of a schedule at once, in addition to its slots, even while it is paused."""
    with (
        open_queue(options, may_be_new=True) as (installation, queue),
        _acting(installation, queue, "run", by, channel=channel, name=name) as connection,
    ):
        message_id = queue.schedules.run(connection, name, channel=channel)
    said = f"message {message_id} is enqueued" if message_id else f"channel {channel!r} is full, and its policy drops"
    return Result({"queue": queue.name, "channel": channel, "name": name, "message_id": message_id}, (said,))


def remove_schedule(options: Options, name: str, *, channel: OwnChannel, by: By = None, yes: Yes = False) -> Result:
    """Remove a schedule; its messages stay. If code declares it, it comes back when a worker with that code starts."""
    with open_queue(options, may_be_new=True) as (installation, queue):
        found = _schedule(installation, queue, channel, name)
        again = ", which its code makes again when a worker starts" if found.in_code else ""
        what = f"schedule {name!r} of channel {channel!r} of queue {queue.name!r}"
        confirm(f"remove {what}{again}?", yes=yes)
        with _acting(installation, queue, "remove", by, channel=channel, name=name) as connection:
            queue.schedules.remove(connection, name, channel=channel)
    document = {"queue": queue.name, "channel": channel, "name": name, "in_code": found.in_code}
    return Result(document, (f"{what} is removed{again}",))


@contextmanager
def _acting(
    installation: Installation, queue: Queue, what: str, by: str | None, *, channel: str, name: str
) -> Iterator[Connection]:
    details = {"schedule": name}
    try:
        with acting(installation, queue, f"{what} schedule", by, channel=channel, details=details) as connection:
            yield connection
    except UnknownSchedule as error:
        raise not_found_error(str(error)) from error


def _schedule(installation: Installation, queue: Queue, channel: str, name: str) -> ScheduleInfo:
    found = queue.schedules.list(installation.engine, channel=channel, name=name)
    if not found:
        raise not_found_error(
            f"channel {channel!r} of queue {queue.name!r} has no schedule {name!r}; "
            f"'fairqueue schedules list {in_queue(queue)}' shows all"
        )
    return found[0]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise usage_error(f"--payload {text!r:.80} is no JSON: {error}") from error


def _next(one: ScheduleInfo) -> str:
    what = f"schedule {one.name!r} of channel {one.channel!r} of queue {one.queue!r}"
    if one.paused_at is not None:
        return f"{what} is paused"
    return f"{what}: next at {'unknown' if one.next_run_at is None else one.next_run_at.isoformat(sep=' ')}"
