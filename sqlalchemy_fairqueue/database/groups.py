"""Groups: made, joined, shown, cancelled, and what workers need to finish them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from uuid import UUID

from sqlalchemy_fairqueue.database.calls import Call, call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.database.enqueues import message_parameters
from sqlalchemy_fairqueue.database.policies import new_policy_json
from sqlalchemy_fairqueue.times import any_instant, instant, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values import GroupCancellation, GroupStatus

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.enqueues import EncodedMessage
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.database.tokens import Token
    from sqlalchemy_fairqueue.values import ChannelPolicy, MessageState

_STATUS = ("added", "done", "failed", "cancelled", "created_at", "finished_at", "message_id", "problem")
_MESSAGE_TYPES = {
    "channels": "text[]",
    "kinds": "text[]",
    "contents": "bytea[]",
    "headers": "jsonb[]",
    "delays": "bigint[]",
    "ats": "bigint[]",
    "priorities": "integer[]",
    "keys": "text[]",
    "max_attempts": "integer[]",
}


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


@once_a_schema
def make_group_clause(schema: str | None) -> Clause:
    """``fq_make_group``."""
    types = {"queue": "text", "group_id": "uuid", "on_failures": "boolean[]", **_MESSAGE_TYPES, "policy": "jsonb"}
    return call(schema, "fq_make_group", "fq_make_group as nothing", **types)


def make_group(
    connection: Connection,
    target: Target,
    group_id: UUID,
    *,
    then: EncodedMessage | None,
    on_failure: EncodedMessage | None,
    policy: ChannelPolicy,
) -> None:
    """Make a group with the messages that may follow it."""
    fetch(connection, *make_group_call(target, group_id, then=then, on_failure=on_failure, policy=policy))


def make_group_call(
    target: Target,
    group_id: UUID,
    *,
    then: EncodedMessage | None,
    on_failure: EncodedMessage | None,
    policy: ChannelPolicy,
) -> Call:
    """The call of :func:`make_group`."""
    followups = [one for one in (then, on_failure) if one is not None]
    columns = [message_parameters(one) for one in followups]
    # Without any they are null: no driver writes an empty array of contents.
    parameters: dict[str, Any] = {name: [one[name] for one in columns] or None for name in _MESSAGE_TYPES}
    parameters["queue"] = target.queue
    parameters["group_id"] = str(group_id)
    parameters["on_failures"] = [one is on_failure for one in followups] or None
    parameters["policy"] = new_policy_json(policy)
    return Call(make_group_clause(target.schema), parameters, f"make group {group_id} of queue {target.queue!r}")


@once_a_schema
def join_group_clause(schema: str | None) -> Clause:
    """``fq_join_group``."""
    return call(
        schema,
        "fq_join_group",
        "fq_join_group as outcome",
        queue="text",
        group_id="uuid",
        added="integer",
        message_id="bigint",
        lease_id="bigint",
        deliveries="integer",
    )


def join_group(
    connection: Connection, target: Target, group_id: UUID, added: int, by: Token | None
) -> Literal["joined", "lost", "cancelled", "stranger"]:
    """Count messages that the transaction added to a group.

    Args:
        connection: In the transaction that added them.
        target: The queue.
        group_id: The group.
        added: How many.
        by: The member that adds them, which is locked; None: the transaction makes the group.
    """
    [row] = fetch(connection, *join_group_call(target, group_id, added, by))
    return cast("Literal['joined', 'lost', 'cancelled', 'stranger']", row.outcome)


def join_group_call(target: Target, group_id: UUID, added: int, by: Token | None = None) -> Call:
    """The call of :func:`join_group`."""
    parameters = {
        "queue": target.queue,
        "group_id": str(group_id),
        "added": added,
        "message_id": None if by is None else by.message_id,
        "lease_id": None if by is None else by.lease_id,
        "deliveries": None if by is None else by.deliveries,
    }
    return Call(join_group_clause(target.schema), parameters, f"join group {group_id}")


@once_a_schema
def group_status_clause(schema: str | None) -> Clause:
    """``fq_group_status``."""
    return call(schema, "fq_group_status", ", ".join(_STATUS), queue="text", group_id="uuid")


def group_status(connection: Connection, target: Target, group_id: UUID) -> GroupStatus | None:
    """The counts of a group. None: there is no such group."""
    parameters = {"queue": target.queue, "group_id": str(group_id)}
    rows = fetch(connection, group_status_clause(target.schema), parameters, f"read group {group_id}")
    return _status(group_id, rows[0]) if rows else None


@once_a_schema
def groups_clause(schema: str | None) -> Clause:
    """``fq_groups``."""
    types = {"queue": "text", "open": "boolean", "before_at": "bigint", "before_id": "uuid", "limit": "integer"}
    return call(schema, "fq_groups", ", ".join(("group_id", *_STATUS)), **types)


def groups(
    connection: Connection,
    target: Target,
    *,
    is_open: bool | None = None,
    before: GroupStatus | None = None,
    limit: int = 1000,
) -> list[GroupStatus]:
    """Groups of a queue, the newest first, with the counts of this moment.

    Args:
        connection: Where to ask.
        target: The queue.
        is_open: Only those that are open, or with False only those that are finished.
        before: The last one of the page before.
        limit: Most to return.
    """
    parameters = {
        "queue": target.queue,
        "open": is_open,
        "before_at": None if before is None else instant_microseconds(before.created_at),
        "before_id": None if before is None else str(before.id),
        "limit": limit,
    }
    rows = fetch(connection, groups_clause(target.schema), parameters, f"list the groups of queue {target.queue!r}")
    return [_status(UUID(str(row.group_id)), row) for row in rows]


@once_a_schema
def group_members_clause(schema: str | None) -> Clause:
    """``fq_group_members``."""
    columns = "message_id, pg_catalog.convert_to(channel, 'UTF8') as channel, state"
    return call(schema, "fq_group_members", columns, queue="text", group_id="uuid", limit="integer")


def group_members(connection: Connection, target: Target, group_id: UUID, *, limit: int) -> list[Member]:
    """Members of a group that have not ended, in the order of their ids as far as *limit* of them are concerned.

    Args:
        connection: Where to ask.
        target: The queue.
        group_id: The group.
        limit: Most to return; any, if there are more.
    """
    parameters = {"queue": target.queue, "group_id": str(group_id), "limit": limit}
    rows = fetch(connection, group_members_clause(target.schema), parameters, f"list the members of group {group_id}")
    found = (Member(row.message_id, str(row.channel, "utf-8", "replace"), row.state) for row in rows)
    return sorted(found, key=lambda member: member.message_id)


@once_a_schema
def cancel_group_clause(schema: str | None) -> Clause:
    """``fq_cancel_group``."""
    return call(schema, "fq_cancel_group", "cancelled, leased", queue="text", group_id="uuid")


def cancel_group(connection: Connection, target: Target, group_id: UUID) -> GroupCancellation | None:
    """Withdraw all members of a group. None: there is no such group."""
    parameters = {"queue": target.queue, "group_id": str(group_id)}
    rows = fetch(connection, cancel_group_clause(target.schema), parameters, f"cancel group {group_id}")
    return GroupCancellation(rows[0].cancelled, rows[0].leased) if rows else None


@once_a_schema
def groups_due_clause(schema: str | None) -> Clause:
    """``fq_groups_due``."""
    return call(schema, "fq_groups_due", "fq_groups_due as due")


def groups_due(connection: Connection, schema: str | None) -> bool:
    """Whether there is anything to fold or to finish."""
    [row] = fetch(connection, groups_due_clause(schema), {}, "poll for groups")
    return cast("bool", row.due)


@once_a_schema
def fold_groups_clause(schema: str | None) -> Clause:
    """``fq_fold_groups``."""
    types = {"limit": "integer", "groups": "integer", "notify": "boolean"}
    return call(schema, "fq_fold_groups", "folded, finished, more", **types)


def fold_groups(connection: Connection, schema: str | None, *, limit: int, groups: int, notify: bool) -> Folded | None:
    """Count what has become of members, and finish groups. None: another transaction does.

    Args:
        connection: The only statement of its transaction.
        schema: Of the installation.
        limit: Most notes to fold.
        groups: Most groups to finish.
        notify: Whether waiting consumers may be woken.
    """
    parameters = {"limit": limit, "groups": groups, "notify": may_notify(connection, notify)}
    rows = fetch(connection, fold_groups_clause(schema), parameters, "finish groups")
    return Folded._make(rows[0]) if rows else None


@once_a_schema
def prune_groups_clause(schema: str | None) -> Clause:
    """``fq_prune_groups``."""
    return call(schema, "fq_prune_groups", "fq_prune_groups as groups", age="bigint", limit="integer")


def prune_groups(connection: Connection, schema: str | None, *, age: timedelta, limit: int) -> int:
    """Delete groups that were finished so long ago. How many."""
    parameters = {"age": microseconds(age), "limit": limit}
    [row] = fetch(connection, prune_groups_clause(schema), parameters, "prune finished groups")
    return cast("int", row.groups)


def _status(group_id: UUID, row: Row[tuple[object, ...]]) -> GroupStatus:
    return GroupStatus(
        id=group_id,
        total=row.added,
        done=row.done,
        failed=row.failed,
        cancelled=row.cancelled,
        pending=max(row.added - row.done - row.failed - row.cancelled, 0),
        created_at=instant(row.created_at),
        finished_at=None if row.finished_at is None else any_instant(row.finished_at),
        message_id=row.message_id,
        problem=row.problem,
    )
