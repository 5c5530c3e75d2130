"""Schedules: set, removed, paused, run and listed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.database.enqueues import Content
from sqlalchemy_fairqueue.database.policies import new_policy_json
from sqlalchemy_fairqueue.errors import InvalidArgument, UnknownSchedule
from sqlalchemy_fairqueue.times import any_instant, duration, instant, microseconds
from sqlalchemy_fairqueue.values import ScheduleInfo, schedule_state, timing_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.enqueues import EncodedMessage
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import ChannelPolicy, Recurrence

_INFO = (
    "channel", "name", "cron", "timezone", "every", "catch_up", "jitter", "kind", "content_size", "max_attempts",
    "in_code", "anchor_at", "done_until", "next_at", "due_at", "paused_at", "last_slot_at", "last_run_at",
    "last_message_id", "problem", "problem_at", "created_at", "changed_at", "read_at",
)  # fmt: skip


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


@once_a_schema
def set_schedule_clause(schema: str | None) -> Clause:
    """``fq_set_schedule``."""
    return call(
        schema,
        "fq_set_schedule",
        "fq_set_schedule as outcome",
        queue="text",
        channel="text",
        name="text",
        cron="text",
        timezone="text",
        every="bigint",
        catch_up="text",
        jitter="bigint",
        kind="text",
        content="bytea",
        headers="jsonb",
        max_attempts="integer",
        policy="jsonb",
        in_code="boolean",
    )


def set_schedule(connection: Connection, target: Target, definition: ScheduleDefinition) -> str:
    """Make or change a schedule. Returns "created", "changed" or "same"."""
    recurrence, encoded = definition.recurrence, definition.message
    parameters = {
        "queue": target.queue,
        "channel": encoded.message.channel,
        "name": definition.name,
        "cron": recurrence.cron,
        "timezone": recurrence.zone_name,
        "every": None if recurrence.every is None else microseconds(recurrence.every),
        "catch_up": recurrence.catch_up,
        "jitter": microseconds(recurrence.jitter),
        "kind": encoded.message.kind,
        "content": Content(encoded.content),
        "headers": encoded.headers,
        "max_attempts": encoded.max_attempts,
        "policy": new_policy_json(definition.policy),
        "in_code": definition.in_code,
    }
    doing = f"set schedule {definition.name!r} of channel {encoded.message.channel!r} of queue {target.queue!r}"
    [row] = fetch(connection, set_schedule_clause(target.schema), parameters, doing)
    return cast("str", row.outcome)


@once_a_schema
def remove_schedule_clause(schema: str | None) -> Clause:
    """``fq_remove_schedule``."""
    types = {"queue": "text", "channel": "text", "name": "text"}
    return call(schema, "fq_remove_schedule", "fq_remove_schedule as removed", **types)


def remove_schedule(connection: Connection, target: Target, channel: str, name: str) -> bool:
    """Remove a schedule. Whether there was one."""
    parameters = {"queue": target.queue, "channel": channel, "name": name}
    doing = f"remove schedule {name!r} of channel {channel!r} of queue {target.queue!r}"
    [row] = fetch(connection, remove_schedule_clause(target.schema), parameters, doing)
    return cast("bool", row.removed)


@once_a_schema
def pause_schedule_clause(schema: str | None) -> Clause:
    """``fq_pause_schedule``."""
    types = {"queue": "text", "channel": "text", "name": "text", "paused": "boolean"}
    return call(schema, "fq_pause_schedule", "fq_pause_schedule as changed", **types)


def pause_schedule(connection: Connection, target: Target, channel: str, name: str, *, paused: bool) -> bool:
    """Stop the slots of a schedule, or go on with them. Whether that changed anything.

    Raises:
        UnknownSchedule: There is none.
    """
    parameters = {"queue": target.queue, "channel": channel, "name": name, "paused": paused}
    doing = f"{'pause' if paused else 'resume'} schedule {name!r}"
    with _named(target, channel, name):
        [row] = fetch(connection, pause_schedule_clause(target.schema), parameters, doing)
    return cast("bool", row.changed)


@once_a_schema
def run_schedule_clause(schema: str | None) -> Clause:
    """``fq_run_schedule``."""
    types = {"queue": "text", "channel": "text", "name": "text", "notify": "boolean"}
    return call(schema, "fq_run_schedule", "fq_run_schedule as message_id", **types)


def run_schedule(connection: Connection, target: Target, channel: str, name: str) -> int | None:
    """Enqueue the message of a schedule now. Its id; None: the channel is full and drops.

    Raises:
        UnknownSchedule: There is none.
    """
    parameters = {
        "queue": target.queue,
        "channel": channel,
        "name": name,
        "notify": may_notify(connection, target.notify),
    }
    with _named(target, channel, name):
        [row] = fetch(connection, run_schedule_clause(target.schema), parameters, f"run schedule {name!r}")
    return cast("int | None", row.message_id)


@once_a_schema
def schedules_clause(schema: str | None) -> Clause:
    """``fq_schedules``."""
    types = {"queue": "text", "channel": "text", "name": "text", "after_channel": "text", "after_name": "text"}
    return call(schema, "fq_schedules", ", ".join(_INFO), **types, limit="integer")


def schedules(
    connection: Connection,
    target: Target,
    *,
    channel: str | None = None,
    name: str | None = None,
    after: ScheduleInfo | None = None,
    limit: int = 1000,
) -> list[ScheduleInfo]:
    """Schedules of a queue, in the order of channel and name.

    Args:
        connection: Where to ask.
        target: The queue.
        channel: Only those of this channel.
        name: Only those of this name.
        after: The last one of the page before.
        limit: Most to return.
    """
    parameters = {
        "queue": target.queue,
        "channel": channel,
        "name": name,
        "after_channel": None if after is None else after.channel,
        "after_name": None if after is None else after.name,
        "limit": limit,
    }
    doing = f"read the schedules of queue {target.queue!r}"
    return [_info(target.queue, row) for row in fetch(connection, schedules_clause(target.schema), parameters, doing)]


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
