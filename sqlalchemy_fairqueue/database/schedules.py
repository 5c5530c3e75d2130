"""Schedules: set, removed, paused, run and listed; their slots are found, run and pruned by workers.

Plans of slots are made by the caller (``values.planned``); these calls only read and write them.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy_fairqueue.database.calls import Call, call
from sqlalchemy_fairqueue.database.configuration import new_policy_json
from sqlalchemy_fairqueue.database.messages import Content
from sqlalchemy_fairqueue.errors import InvalidArgument, UnknownSchedule
from sqlalchemy_fairqueue.times import any_instant, duration, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.schedules import ScheduleInfo, timing_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.database.messages import EncodedMessage
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy
    from sqlalchemy_fairqueue.values.schedules import CatchUp, Recurrence, ScheduleState

_OVERDUE = timedelta(minutes=5)


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


def schedule_call(target: Target, definition: ScheduleDefinition) -> Call:
    """Return the call that makes or changes a schedule, which returns "created", "changed" or "same"."""
    recurrence, encoded = definition.recurrence, definition.message
    return target.call(
        "fq_set_schedule",
        f"set schedule {definition.name!r} of {target.named(encoded.message.channel)}",
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
        ordering_key=encoded.message.ordering_key,
    )


def set_schedule_paused(connection: Connection, target: Target, channel: str, name: str, *, paused: bool) -> bool:
    """Stop the slots of a schedule, or go on with them. Whether that changed anything.

    Raises:
        UnknownSchedule: There is none.
    """
    doing = f"{'pause' if paused else 'resume'} schedule {name!r}"
    with _named(target, channel, name):
        return target.call("fq_pause_schedule", doing, channel=channel, name=name, paused=paused).value(connection)


def run_schedule(connection: Connection, target: Target, channel: str, name: str) -> int | None:
    """Enqueue the message of a schedule now. Its id; None: the channel is full and drops.

    Raises:
        UnknownSchedule: There is none.
    """
    call = target.call("fq_run_schedule", f"run schedule {name!r}", channel=channel, name=name, notify=target.notify)
    with _named(target, channel, name):
        return call.value(connection)


def read_schedules(
    connection: Connection,
    target: Target,
    *,
    channel: str | None = None,
    name: str | None = None,
    after: ScheduleInfo | None = None,
    limit: int = 1000,
) -> list[ScheduleInfo]:
    """Return schedules of a queue, a channel or a name; *after* is the last one of the page before."""
    rows = target.read(
        connection,
        "fq_schedules",
        f"read the schedules of {target.named()}",
        channel=channel,
        name=name,
        after_channel=None if after is None else after.channel,
        after_name=None if after is None else after.name,
        limit=limit,
    )
    return [_info(**row) for row in rows]


def _info(
    *,
    every: int | None,
    jitter: int,
    anchor_at: datetime,
    done_until: datetime,
    next_at: datetime | None,
    due_at: datetime | None,
    read_at: datetime,
    **row: Any,
) -> ScheduleInfo:
    state: ScheduleState = "active"
    if row["paused_at"] is not None:
        state = "paused"
    elif row["problem"] is not None:
        state = "failing"
    elif due_at is not None and read_at - due_at > _OVERDUE:
        state = "overdue"
    if next_at is None and state != "paused":
        # No worker has planned it yet.
        with suppress(InvalidArgument):
            timing = timing_of(row["cron"], row["timezone"], every, instant_microseconds(anchor_at))
            found = next(timing.after(instant_microseconds(done_until)), None)
            next_at = None if found is None else any_instant(found)
    interval = None if every is None else duration(every)
    return ScheduleInfo(every=interval, jitter=duration(jitter), state=state, next_run_at=next_at, **row)


@contextmanager
def _named(target: Target, channel: str, name: str) -> Iterator[None]:
    try:
        yield
    except UnknownSchedule as error:
        raise UnknownSchedule(
            f"{target.named(channel)} has no schedule {name!r}; correct the name or the channel",
            target.queue,
            channel,
            name,
        ) from error


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
        notify=notify,
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
