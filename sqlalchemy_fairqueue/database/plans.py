"""Plans: policies with a name, which channels of a queue follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.database.policies import fields_of_columns, policy_json
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values import ChannelPolicy, PlanInfo, policy_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import PolicyChanges


@once_a_schema
def configure_plan_clause(schema: str | None) -> Clause:
    """``fq_configure_plan``."""
    return call(schema, "fq_configure_plan", "1", queue="text", name="text", changes="jsonb", notify="boolean")


def configure_plan(connection: Connection, target: Target, name: str, changes: PolicyChanges, *, notify: bool) -> None:
    """Make a plan, or change fields of its policy."""
    parameters = {
        "queue": target.queue,
        "name": name,
        "changes": policy_json(changes),
        "notify": may_notify(connection, notify),
    }
    doing = f"configure plan {name!r} of queue {target.queue!r}"
    fetch(connection, configure_plan_clause(target.schema), parameters, doing)


@once_a_schema
def remove_plan_clause(schema: str | None) -> Clause:
    """``fq_remove_plan``."""
    return call(schema, "fq_remove_plan", "fq_remove_plan as removed", queue="text", name="text")


def remove_plan(connection: Connection, target: Target, name: str) -> None:
    """Remove a plan that nothing follows. One that does not exist is no error."""
    parameters = {"queue": target.queue, "name": name}
    fetch(connection, remove_plan_clause(target.schema), parameters, f"remove plan {name!r} of queue {target.queue!r}")


@once_a_schema
def lock_plans_clause(schema: str | None) -> Clause:
    """``fq_lock_plans``."""
    return call(schema, "fq_lock_plans", "1", queue="text", removed="text[]", used="text[]")


def lock_plans(connection: Connection, target: Target, removed: Sequence[str], used: Sequence[str]) -> None:
    """Lock plans that are removed, and those that channels are put on."""
    parameters = {"queue": target.queue, "removed": list(removed), "used": list(used)}
    fetch(connection, lock_plans_clause(target.schema), parameters, f"lock plans of queue {target.queue!r}")


@once_a_schema
def plans_clause(schema: str | None) -> Clause:
    """``fq_plans``."""
    return call(schema, "fq_plans", "*", queue="text", name="text")


def plans(connection: Connection, target: Target, name: str | None) -> list[PlanInfo]:
    """The plans of a queue by name, or only that one."""
    parameters = {"queue": target.queue, "name": name}
    return [
        PlanInfo(
            name=row.name,
            policy=ChannelPolicy(**policy_values(row.policy)),
            channels=row.channels,
            is_default=row.is_default,
            spread=row.spread,
        )
        for row in fetch(
            connection, plans_clause(target.schema), parameters, f"list the plans of queue {target.queue!r}"
        )
    ]


@once_a_schema
def spread_plans_clause(schema: str | None) -> Clause:
    """``fq_spread_plans``."""
    return call(schema, "fq_spread_plans", "*", queue="text", limit="integer")


def spread_plans(connection: Connection, target: Target, limit: int) -> timedelta | None:
    """Bring changes of plans to up to *limit* of the channels that follow them.

    Returns:
        When there is more to do, from now on. None: the changes are with all channels.
    """
    parameters = {"queue": target.queue, "limit": limit}
    [row] = fetch(
        connection, spread_plans_clause(target.schema), parameters, f"spread the plans of queue {target.queue!r}"
    )
    return None if row.due_in is None else duration(row.due_in)


@dataclass(frozen=True, slots=True)
class Follower:
    """A channel that follows a plan.

    Attributes:
        channel_id: Its id, the order of the list.
        channel: Its name.
        overridden: The fields of its policy that were configured for it alone.
    """

    channel_id: int
    channel: str
    overridden: tuple[str, ...]


@once_a_schema
def plan_channels_clause(schema: str | None) -> Clause:
    """``fq_plan_channels``."""
    columns = "channel_id, pg_catalog.convert_to(channel, 'UTF8') as channel, overridden"
    types = {"queue": "text", "plan": "text", "after": "bigint", "limit": "integer"}
    return call(schema, "fq_plan_channels", columns, **types)


def plan_channels(
    connection: Connection, target: Target, name: str, *, after: int | None = None, limit: int
) -> list[Follower]:
    """The channels that follow a plan, by their ids.

    Args:
        connection: Where to ask.
        target: The queue.
        name: The plan.
        after: The id of the last channel of the page before.
        limit: Most to return.
    """
    parameters = {"queue": target.queue, "plan": name, "after": after, "limit": limit}
    doing = f"list the channels of plan {name!r} of queue {target.queue!r}"
    rows = fetch(connection, plan_channels_clause(target.schema), parameters, doing)
    return [
        Follower(row.channel_id, str(row.channel, "utf-8", "replace"), fields_of_columns(row.overridden))
        for row in rows
    ]
