"""The queue work of a transaction, sorted for its way to the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy_fairqueue.unit_of_work.operations import ENQUEUES, Cancel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.operations import (
        Configuration,
        EnqueueMessage,
        MakeGroup,
        MessageChange,
        Operation,
        ScheduleChange,
        Target,
    )

T = TypeVar("T")
Where = tuple["Connection", "Target"]
ByQueue = list[tuple[Where, list[T]]]


class Work:
    """Operations by phase, connection and queue. Those of one queue keep the order in which they were asked for.

    Targets are equal by what names a queue, whose connections tell its database.

    Attributes:
        connections: The connection of each target, by the identity of that.
        cancelled: The messages of each queue that are cancelled, each with how many of the queue's enqueues were asked
            for before.
    """

    __slots__ = ("_phases", "cancelled", "connections")

    def __init__(self) -> None:
        self.connections: dict[int, Connection] = {}
        self.cancelled: dict[Where, dict[int, int]] = {}
        self._phases: tuple[dict[Where, list[Any]], ...] = ({}, {}, {}, {}, {})

    def add(self, operations: Iterable[Operation], connection_of: Callable[[Target], Connection]) -> None:
        """Take operations in, each for the connection of its target."""
        target = kind = where = None
        group: list[Operation] = []
        for operation in operations:
            # Those that were asked for together have the same target, which is compared at less cost than it is hashed.
            if operation.target is not target or type(operation) is not kind or where is None:
                target, kind = operation.target, type(operation)
                if (connection := self.connections.get(id(target))) is None:
                    connection = self.connections[id(target)] = connection_of(target)
                where = connection, target
                group = self._phases[operation.phase].setdefault(where, [])
            if isinstance(operation, Cancel):
                before = len(self._phases[ENQUEUES].get(where, ()))
                self.cancelled.setdefault(where, {}).setdefault(operation.message_id, before)
            group.append(operation)

    def sorted(self) -> Phases:
        """What there is to do by phase, in lock order."""
        # Nearly always there is one queue, and a URL takes time to write.
        return Phases(*[in_lock_order(groups) if len(groups) > 1 else list(groups.items()) for groups in self._phases])


class Phases(NamedTuple):
    """The operations of each phase, by connection and queue in lock order."""

    enqueues: ByQueue[EnqueueMessage]
    groups: ByQueue[MakeGroup]
    configuration: ByQueue[Configuration]
    messages: ByQueue[MessageChange]
    schedules: ByQueue[ScheduleChange]

    def need_no_answer(self) -> bool:
        """Whether nobody must look at an answer before the COMMIT but the server.

        Those are enqueues, settlements, and groups with members that are added by the transaction that makes them.
        Others are added by a member, whose delivery must not have been lost.
        """
        if self.configuration or self.schedules:
            return False
        made: set[UUID | None] = {None}
        for _, making in self.groups:
            made.update(one.group_id for one in making)
        for _, group in self.enqueues:
            before = None
            for one in group:
                # Those that were added together have the same object.
                if one.group_id is not before:
                    before = one.group_id
                    if before not in made:
                        return False
        return True


def in_lock_order(groups: dict[Where, list[T]]) -> ByQueue[T]:
    """What is to be done by queue and connection, in the order in which queues are locked."""
    return sorted(groups.items(), key=_lock_order)


def _lock_order(one: tuple[Where, Any]) -> tuple[bytes, bytes, str]:
    connection, target = one[0]
    return (target.schema or "").encode(), target.queue.encode(), connection.engine.url.render_as_string()
