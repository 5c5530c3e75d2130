"""Groups: made, joined, shown, cancelled, and what workers need to finish them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.times import instant_microseconds
from sqlalchemy_fairqueue.values.groups import GroupStatus

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.values.reports import MessageState


class Folded(NamedTuple):
    """The result of a fold.

    Attributes:
        folded: How many notes it counted.
        finished: How many groups it tried to finish.
        more: Whether there may be more to do.
    """

    folded: int
    finished: int
    more: bool


class Member(NamedTuple):
    """A member of a group that has not ended.

    Attributes:
        message_id: The message.
        channel: Its channel.
        state: Whether a consumer holds it, it is due later, or it waits.
    """

    message_id: int
    channel: str
    state: MessageState


def read_group(connection: Connection, target: Target, group_id: UUID) -> GroupStatus | None:
    """Return the counts of a group; None if there is no such group."""
    doing = f"read group {group_id}"
    page = {"open": None, "before_at": None, "before_id": None, "limit": 1}
    rows = target.read(connection, "fq_groups", doing, group_id=str(group_id), **page)
    return _status(**rows[0]) if rows else None


def read_groups(
    connection: Connection,
    target: Target,
    *,
    is_open: bool | None = None,
    before: GroupStatus | None = None,
    limit: int = 1000,
) -> list[GroupStatus]:
    """Return groups of a queue, the newest first, with their present counts.

    Only those that are open, or with False only those that are finished; after *before*, the last of another page.
    """
    rows = target.read(
        connection,
        "fq_groups",
        f"list the groups of queue {target.queue!r}",
        group_id=None,
        open=is_open,
        before_at=None if before is None else instant_microseconds(before.created_at),
        before_id=None if before is None else str(before.id),
        limit=limit,
    )
    return [_status(**row) for row in rows]


def _status(group_id: UUID | str, added: int, **row: Any) -> GroupStatus:
    pending = max(added - row["done"] - row["failed"] - row["cancelled"], 0)
    return GroupStatus(id=UUID(str(group_id)), total=added, pending=pending, **row)


def read_group_members(connection: Connection, target: Target, group_id: UUID, *, limit: int) -> list[Member]:
    """Return the members of a group that have not ended, by id; if there are more than *limit*, any of them."""
    parameters = {"group_id": str(group_id), "limit": limit}
    rows = target.read(connection, "fq_group_members", f"list the members of group {group_id}", **parameters)
    return sorted((Member(**row) for row in rows), key=lambda member: member.message_id)


def fold_groups(connection: Connection, schema: str | None, *, limit: int, groups: int, notify: bool) -> Folded | None:
    """Count what has become of members, and finish groups. None: another transaction does.

    It is alone in its transaction, folds *limit* notes at most, and finishes *groups* groups at most.
    """
    found = call(schema, "fq_fold_groups", "finish groups", limit=limit, groups=groups, notify=notify)
    return next(map(Folded._make, found.rows(connection)), None)
