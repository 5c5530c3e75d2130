"""Plans: policies with a name, which channels of a queue follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import may_notify
from sqlalchemy_fairqueue.database.policies import fields_of_columns, policy_json
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values import ChannelPolicy, PlanInfo, policy_values

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.values import PolicyChanges


def configure_plan(connection: Connection, target: Target, name: str, changes: PolicyChanges, *, notify: bool) -> None:
    """Make a plan, or change fields of its policy."""
    parameters = {
        "name": name,
        "changes": policy_json(changes),
        "notify": may_notify(connection, notify),
    }
    doing = f"configure plan {name!r} of queue {target.queue!r}"
    target.call("fq_configure_plan", doing, **parameters).rows(connection)


def plans(connection: Connection, target: Target, name: str | None) -> list[PlanInfo]:
    """The plans of a queue by name, or only that one."""
    doing = f"list the plans of queue {target.queue!r}"
    rows = target.read(connection, "fq_plans", doing, name=name)
    return [PlanInfo(policy=ChannelPolicy(**policy_values(row.pop("policy"))), **row) for row in rows]


def spread_plans(connection: Connection, target: Target, limit: int) -> timedelta | None:
    """Bring changes of plans to up to *limit* of the channels that follow them.

    Returns:
        When there is more to do, from now on. None: the changes are with all channels.
    """
    doing = f"spread the plans of queue {target.queue!r}"
    [row] = target.call("fq_spread_plans", doing, limit=limit).rows(connection)
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
    parameters = {"plan": name, "after": after, "limit": limit}
    doing = f"list the channels of plan {name!r} of queue {target.queue!r}"
    rows = target.read(connection, "fq_plan_channels", doing, **parameters)
    return [Follower(overridden=fields_of_columns(row.pop("overridden")), **row) for row in rows]
