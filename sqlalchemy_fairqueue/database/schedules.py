"""Calls that set schedules, and calls by which workers find due schedules and run their slots, or note a failure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy_fairqueue.database.calls import Call, Target, call
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import any_instant, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.schedules import CatchUp, Plan, Recurrence, ScheduleInfo, ScheduleState, timing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.messages import EncodedMessage

_OVERDUE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A schedule to set. If *in_code*, the application's code declares it, and each start of a worker sets it."""

    name: str
    recurrence: Recurrence
    message: EncodedMessage
    in_code: bool = False


class DueSchedule(NamedTuple):
    """A schedule that is due now or soon, for a worker to find its slots. Instants are microseconds since 1970."""

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

    def seen(self) -> dict[str, int]:
        """Return the parameters by which SQL functions notice that the schedule has changed since it was read."""
        return {"id": self.id, "revision": self.revision, "done_until": self.done_until}


def schedule_call(target: Target, definition: ScheduleDefinition) -> Call:
    """Return the call that sets a schedule; the value of the call is "created", "changed" or "same"."""
    recurrence, encoded = definition.recurrence, definition.message
    return target.call(
        "fq_set_schedule",
        f"set schedule {definition.name!r} of",
        channel=encoded.message.channel,
        name=definition.name,
        cron=recurrence.cron,
        timezone=recurrence.zone_name,
        every=recurrence.every,
        catch_up=recurrence.catch_up,
        jitter=recurrence.jitter,
        kind=encoded.message.kind,
        content=encoded.content,
        headers=encoded.headers,
        max_attempts=encoded.max_attempts,
        policy=target.policy,
        in_code=definition.in_code,
        ordering_key=encoded.message.ordering_key,
    )


def schedule_info(
    *,
    every: timedelta | None,
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
        # No worker has found the next slot yet.
        with suppress(InvalidArgument):
            interval = None if every is None else microseconds(every)
            timing = timing_of(row["cron"], row["timezone"], interval, instant_microseconds(anchor_at))
            found = next(timing.after(instant_microseconds(done_until)), None)
            next_at = None if found is None else any_instant(found)
    return ScheduleInfo(every=every, state=state, next_run_at=next_at, **row)


def due_schedules(
    connection: Connection,
    schema: str | None,
    queues: Sequence[str],
    *,
    in_code: Sequence[tuple[str, str, str]],
    ahead: timedelta,
    limit: int,
) -> list[DueSchedule]:
    """Return up to *limit* schedules of each queue that are due within *ahead*.

    Of the schedules that code declares, return only those in *in_code*: (queue, channel, name).
    """
    rows = call(
        schema,
        "fq_due_schedules",
        "find the schedules that are due",
        queues=list(queues),
        code_queues=[queue for queue, _, _ in in_code],
        code_channels=[channel for _, channel, _ in in_code],
        code_names=[name for _, _, name in in_code],
        ahead=ahead,
        limit=limit,
    ).rows(connection)
    return list(map(DueSchedule._make, rows))


def run_slots(
    connection: Connection, schema: str | None, due: DueSchedule, plan: Plan, *, notify: bool
) -> dict[int, int | None] | None:
    """Run ``plan.slots`` of a schedule, and store that all slots up to ``plan.until`` are done.

    Return the message id of each slot that was run, None if its message was dropped. Do nothing and return None if
    another worker was first or has the schedule locked, if the schedule was changed, paused or removed, or if
    ``plan.until`` is in the future. Call this in a transaction of its own.
    """
    rows = call(
        schema,
        "fq_run_slots",
        f"run schedule {due.name!r}",
        **due.seen(),
        slots=list(plan.slots),
        until=plan.until,
        next=plan.next,
        notify=notify,
    ).rows(connection)
    return {slot_at: message_id for slot_at, message_id in rows if slot_at is not None} if rows else None


def fail_schedule(
    connection: Connection, schema: str | None, due: DueSchedule, *, problem: str, delay: timedelta
) -> bool:
    """Note why a schedule could not be run, so that workers try it again after *delay*. Return whether it was noted."""
    doing = f"note the problem of schedule {due.name!r}"
    noted = call(schema, "fq_fail_schedule", doing, **due.seen(), problem=problem, delay=delay)
    return noted.value(connection)
