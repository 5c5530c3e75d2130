"""Groups of messages as values: how far one is, and what was cancelled of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

GROUP_HEADER = "group"
"""The header of a member: the id of its group."""
AFTER_GROUP_HEADER = "after_group"
"""The header of the message that follows a group: its id and counts."""


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The members of a group when it was finished. Its follow-up has them as ``context.after_group``.

    Attributes:
        id: The group.
        total: How many members it had, those that members added included.
        done: How many were completed.
        failed: How many became dead letters.
        cancelled: How many were cancelled or purged.

    Example:
        >>> @queue.handler("page")
        ... def page(delivery: Delivery) -> None: ...
        >>> @queue.handler("report")
        ... def report(delivery: Delivery, context: Context) -> None:
        ...     print(f"{context.after_group.done} of {context.after_group.total} pages")
        >>> with rolled_back(engine) as session:
        ...     with queue.group(session, then=Enqueue(channel="customer-7", payload=1, kind="report")) as group:
        ...         receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=1, kind="page")])
        ...     performed = drain(session, queue)
        1 of 1 pages
    """

    id: UUID
    total: int
    done: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class GroupStatus(GroupCounts):
    """The counts of a group.

    Attributes:
        pending: How many members have not ended: ready, scheduled, out, or to be tried again.
        created_at: When the transaction that made it sent it.
        finished_at: When its follow-up was enqueued, or without one when it was seen that all members have ended; None:
            it is open.
        message_id: The follow-up; None before, and without one.
        problem: Why its follow-up could not be enqueued at the last try; it is tried again.

    Example:
        >>> with Session(engine) as session, session.begin():
        ...     with queue.group(session) as group:
        ...         receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=page) for page in (1, 2)])
        >>> queue.complete(engine, queue.dequeue(engine, limit=1))
        >>> status = queue.groups.status(engine, group.id)
        >>> status.done, status.pending, status.finished_at
        (1, 1, None)
    """

    pending: int
    created_at: datetime
    finished_at: datetime | None
    message_id: int | None
    problem: str | None


class GroupCancellation(NamedTuple):
    """The result of cancelling a group.

    Attributes:
        cancelled: How many members are gone.
        leased: How many a consumer holds. They are gone unless it completes them.

    Example:
        >>> with Session(engine) as session, session.begin():
        ...     with queue.group(session) as group:
        ...         receipts = group.enqueue_many([Enqueue(channel="customer-7", payload=1)])
        >>> queue.groups.cancel(engine, group.id)
        GroupCancellation(cancelled=1, leased=0)
    """

    cancelled: int
    leased: int


def checked_group_id(group_id: object) -> UUID:
    """Return the id of a group, given as a UUID or as its text.

    Raises:
        InvalidArgument: It is none.
    """
    if isinstance(group_id, UUID):
        return group_id
    if isinstance(group_id, str):
        try:
            return UUID(group_id)
        except ValueError:
            pass
    raise InvalidArgument(f"group_id is {group_id!r:.80}; give the id of a group, a UUID")


def group_of_headers(headers: Mapping[str, Any] | None) -> UUID | None:
    """Return the group whose member a message is, by its headers."""
    try:
        return checked_group_id((headers or {}).get(GROUP_HEADER))
    except InvalidArgument:
        return None


def counts_of_headers(headers: Mapping[str, Any] | None) -> GroupCounts | None:
    """Return the counts of the group that a message follows, by its headers."""
    found: Any = (headers or {}).get(AFTER_GROUP_HEADER)
    try:
        counts = [int(found[name]) for name in ("total", "done", "failed", "cancelled")]
        return GroupCounts(checked_group_id(found["id"]), *counts)
    except (InvalidArgument, LookupError, TypeError, ValueError):
        return None
