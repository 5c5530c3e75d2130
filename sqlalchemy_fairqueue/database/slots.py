"""Slots of schedules: found, run and pruned by workers.

Plans of slots are made by the caller (``values.planned``); these calls only read and write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.values import CatchUp

_DUE = (
    "id", "queue", "channel", "name", "cron", "timezone", "every", "catch_up", "revision", "anchor_at", "done_until",
    "due_at", "content_size", "read_at",
)  # fmt: skip


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


@once_a_schema
def due_schedules_clause(schema: str | None) -> Clause:
    """``fq_due_schedules``."""
    return call(
        schema,
        "fq_due_schedules",
        ", ".join(_DUE),
        queues="text[]",
        code_queues="text[]",
        code_channels="text[]",
        code_names="text[]",
        ahead="bigint",
        limit="integer",
    )


def due_schedules(
    connection: Connection,
    schema: str | None,
    queues: Sequence[str],
    *,
    in_code: Sequence[tuple[str, str, str]],
    ahead: timedelta,
    limit: int,
) -> list[DueSchedule]:
    """The schedules of queues that are due now or shortly.

    Args:
        connection: Where to ask.
        schema: Of the installation.
        queues: The queues.
        in_code: Queue, channel and name of the schedules that the caller's code declares.
        ahead: Also those that are due within this time.
        limit: Most of each queue.
    """
    parameters = {
        "queues": list(queues),
        "code_queues": [queue for queue, _, _ in in_code],
        "code_channels": [channel for _, channel, _ in in_code],
        "code_names": [name for _, _, name in in_code],
        "ahead": microseconds(ahead),
        "limit": limit,
    }
    rows = fetch(connection, due_schedules_clause(schema), parameters, "find the schedules that are due")
    return [DueSchedule._make(row) for row in rows]


@once_a_schema
def run_slots_clause(schema: str | None) -> Clause:
    """``fq_run_slots``."""
    return call(
        schema,
        "fq_run_slots",
        "slot_at, message_id",
        id="bigint",
        revision="bigint",
        done_until="bigint",
        slots="bigint[]",
        until="bigint",
        next="bigint",
        notify="boolean",
    )


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

    Args:
        connection: The only statement of its transaction.
        schema: Of the installation.
        due: The schedule as it was read.
        slots: Those to run.
        until: All slots up to then are done.
        next_slot: The slot after it.
        notify: Whether waiting consumers may be woken.

    Returns:
        The message of each slot that was run; None instead of it: it was dropped. None: nothing was done.
    """
    parameters = {
        "id": due.id,
        "revision": due.revision,
        "done_until": due.done_until,
        "slots": list(slots),
        "until": until,
        "next": next_slot,
        "notify": may_notify(connection, notify),
    }
    rows = fetch(connection, run_slots_clause(schema), parameters, f"run schedule {due.name!r}")
    return {row.slot_at: row.message_id for row in rows if row.slot_at is not None} if rows else None


@once_a_schema
def fail_schedule_clause(schema: str | None) -> Clause:
    """``fq_fail_schedule``."""
    types = {"id": "bigint", "revision": "bigint", "done_until": "bigint", "problem": "text", "delay": "bigint"}
    return call(schema, "fq_fail_schedule", "fq_fail_schedule as noted", **types)


def fail_schedule(
    connection: Connection, schema: str | None, due: DueSchedule, *, problem: str, delay: timedelta
) -> bool:
    """Note why a schedule could not be run, and let it be tried again after *delay*. Whether it was noted."""
    parameters = {
        "id": due.id,
        "revision": due.revision,
        "done_until": due.done_until,
        "problem": problem,
        "delay": microseconds(delay),
    }
    [row] = fetch(connection, fail_schedule_clause(schema), parameters, f"note the problem of schedule {due.name!r}")
    return cast("bool", row.noted)


@once_a_schema
def prune_slots_clause(schema: str | None) -> Clause:
    """``fq_prune_slots``."""
    return call(schema, "fq_prune_slots", "slots, schedules", age="bigint", limit="integer")


def prune_slots(connection: Connection, schema: str | None, *, age: timedelta, limit: int) -> tuple[int, Sequence[str]]:
    """Delete old records of slots, and schedules that no code declares any more. How many, and which schedules."""
    parameters = {"age": microseconds(age), "limit": limit}
    [row] = fetch(connection, prune_slots_clause(schema), parameters, "prune the slots of schedules")
    return row.slots, row.schedules
