"""Schedules: set, removed, paused, run and listed; their slots are found, run and pruned by workers.

Plans of slots are made by the caller (``values.planned``); these calls only read and write them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy_fairqueue.database.calls import call, may_notify
from sqlalchemy_fairqueue.database.messages import Content
from sqlalchemy_fairqueue.database.policies import new_policy_json
from sqlalchemy_fairqueue.errors import InvalidArgument, UnknownSchedule
from sqlalchemy_fairqueue.times import any_instant, duration, instant, microseconds
from sqlalchemy_fairqueue.values import ScheduleInfo, schedule_state, timing_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.database.messages import EncodedMessage
    from sqlalchemy_fairqueue.values import CatchUp, ChannelPolicy, Recurrence


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A schedule to be.

    Attributes:
        name: Its name.
        recurrence: When it is due.
        message: What it enqueues, and in which channel.
        policy: For the channel, if that is new when a slot comes and the queue has no configured one.
        in_code: Whether code makes it each time a worker starts.
    """

    name: str
    recurrence: Recurrence
    message: EncodedMessage
    policy: ChannelPolicy
    in_code: bool = False


class DueSchedule(NamedTuple):
    """A schedule as a worker needs it to find its slots; times are microseconds since the epoch."""

    id: int
    queue: str
    channel: str
    name: str
    cron: str | None
    timezone: str | None
    every: int | None
    catch_up: CatchUp
    revision: int
    anchor_at: int
    done_until: int
    due_at: int
    content_size: int
    read_at: int


def set_schedule(connection: Connection, target: Target, definition: ScheduleDefinition) -> str:
    """Make or change a schedule. Returns "created", "changed" or "same"."""
    recurrence, encoded = definition.recurrence, definition.message
    return target.call(
        "fq_set_schedule",
        f"set schedule {definition.name!r} of channel {encoded.message.channel!r} of queue {target.queue!r}",
        channel=encoded.message.channel,
        name=definition.name,
        cron=recurrence.cron,
        timezone=recurrence.zone_name,
        every=None if recurrence.every is None else microseconds(recurrence.every),
        catch_up=recurrence.catch_up,
        jitter=microseconds(recurrence.jitter),
        kind=encoded.message.kind,
        content=Content(encoded.content),
        headers=encoded.headers,
        max_attempts=encoded.max_attempts,
        policy=new_policy_json(definition.policy),
        in_code=definition.in_code,
    ).value(connection)


def pause_schedule(connection: Connection, target: Target, channel: str, name: str, *, paused: bool) -> bool:
    """Stop the slots of a schedule, or go on with them. Whether that changed anything.

    Raises:
        UnknownSchedule: There is none.
    """
    doing = f"{'pause' if paused else 'resume'} schedule {name!r}"
    parameters = {"channel": channel, "name": name, "paused": paused}
    with _named(target, channel, name):
        return target.call("fq_pause_schedule", doing, **parameters).value(connection)


def run_schedule(connection: Connection, target: Target, channel: str, name: str) -> int | None:
    """Enqueue the message of a schedule now. Its id; None: the channel is full and drops.

    Raises:
        UnknownSchedule: There is none.
    """
    notify = may_notify(connection, target.notify)
    parameters = {"channel": channel, "name": name, "notify": notify}
    with _named(target, channel, name):
        return target.call("fq_run_schedule", f"run schedule {name!r}", **parameters).value(connection)


def schedules(
    connection: Connection,
    target: Target,
    *,
    channel: str | None = None,
    name: str | None = None,
    after: ScheduleInfo | None = None,
    limit: int = 1000,
) -> list[ScheduleInfo]:
    """Return schedules of a queue, a channel or a name; *after* is the last one of the page before."""
    rows = target.call(
        "fq_schedules",
        f"read the schedules of queue {target.queue!r}",
        channel=channel,
        name=name,
        after_channel=None if after is None else after.channel,
        after_name=None if after is None else after.name,
        limit=limit,
    ).rows(connection)
    return [_info(target.queue, row) for row in rows]


@contextmanager
def _named(target: Target, channel: str, name: str) -> Iterator[None]:
    try:
        yield
    except UnknownSchedule as error:
        raise UnknownSchedule(
            f"channel {channel!r} of queue {target.queue!r} has no schedule {name!r}; correct the name or the channel",
            target.queue,
            channel,
            name,
        ) from error


def _info(queue: str, row: Row[tuple[object, ...]]) -> ScheduleInfo:
    paused, problem = row.paused_at is not None, row.problem is not None
    next_at = row.next_at
    if next_at is None and not paused:
        # No worker has planned it yet.
        try:
            timing = timing_of(row.cron, row.timezone, row.every, row.anchor_at)
            next_at = next(timing.after(row.done_until), None)
        except InvalidArgument:
            next_at = None
    return ScheduleInfo(
        queue=queue,
        channel=row.channel,
        name=row.name,
        cron=row.cron,
        timezone=row.timezone,
        every=None if row.every is None else duration(row.every),
        catch_up=row.catch_up,
        jitter=duration(row.jitter),
        kind=row.kind,
        content_size=row.content_size,
        max_attempts=row.max_attempts,
        in_code=row.in_code,
        state=schedule_state(paused=paused, problem=problem, due_at=row.due_at, now=row.read_at),
        next_run_at=_at(next_at),
        paused_at=_at(row.paused_at),
        last_slot_at=_at(row.last_slot_at),
        last_run_at=_at(row.last_run_at),
        last_message_id=row.last_message_id,
        problem=row.problem,
        problem_at=_at(row.problem_at),
        created_at=instant(row.created_at),
        changed_at=instant(row.changed_at),
    )


def _at(value: int | None) -> datetime | None:
    return None if value is None else any_instant(value)


def due_schedules(
    connection: Connection,
    schema: str | None,
    queues: Sequence[str],
    *,
    in_code: Sequence[tuple[str, str, str]],
    ahead: timedelta,
    limit: int,
) -> list[DueSchedule]:
    """Return the schedules of queues that are due now or within *ahead*, up to *limit* of each queue.

    *in_code*: queue, channel and name of those that the caller's code declares.
    """
    rows = call(
        schema,
        "fq_due_schedules",
        "find the schedules that are due",
        queues=list(queues),
        code_queues=[queue for queue, _, _ in in_code],
        code_channels=[channel for _, channel, _ in in_code],
        code_names=[name for _, _, name in in_code],
        ahead=microseconds(ahead),
        limit=limit,
    ).rows(connection)
    return list(map(DueSchedule._make, rows))


def run_slots(
    connection: Connection,
    schema: str | None,
    due: DueSchedule,
    *,
    slots: Sequence[int],
    until: int,
    next_slot: int | None,
    notify: bool,
) -> dict[int, int | None] | None:
    """Run slots of a schedule and write its plan, unless another worker was first: then nothing is done.

    It is alone in its transaction. All slots up to *until* are done then, and *next_slot* comes after.

    Returns:
        The message of each slot that was run; None instead of it: it was dropped. None: nothing was done.
    """
    rows = call(
        schema,
        "fq_run_slots",
        f"run schedule {due.name!r}",
        id=due.id,
        revision=due.revision,
        done_until=due.done_until,
        slots=list(slots),
        until=until,
        next=next_slot,
        notify=may_notify(connection, notify),
    ).rows(connection)
    return {slot_at: message_id for slot_at, message_id in rows if slot_at is not None} if rows else None


def fail_schedule(
    connection: Connection, schema: str | None, due: DueSchedule, *, problem: str, delay: timedelta
) -> bool:
    """Note why a schedule could not be run, and let it be tried again after *delay*. Whether it was noted."""
    return call(
        schema,
        "fq_fail_schedule",
        f"note the problem of schedule {due.name!r}",
        id=due.id,
        revision=due.revision,
        done_until=due.done_until,
        problem=problem,
        delay=microseconds(delay),
    ).value(connection)
