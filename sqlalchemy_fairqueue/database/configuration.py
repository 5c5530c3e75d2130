"""Configuration of a queue and its channels, and plans: policies with a name, which channels follow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import Q, call, may_notify, read_by_queue
from sqlalchemy_fairqueue.database.policies import (
    channel_changes_json,
    column_values,
    fields_of_columns,
    new_policy_json,
    policy_json,
)
from sqlalchemy_fairqueue.errors import UnknownChannel
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values import (
    SETTINGS,
    UNSET,
    ChannelPolicy,
    PlanInfo,
    QueueSettings,
    Rate,
    SharedLimit,
    policy_values,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.values import PolicyChanges, QueueChanges, QueueLimits, Unset


def configure_queue(connection: Connection, target: Target, changes: PolicyChanges, *, policy: ChannelPolicy) -> None:
    """Change the policy that new channels of a queue start with; before the first change it is *policy*."""
    parameters = {"changes": policy_json(changes), "policy": new_policy_json(policy)}
    target.call("fq_configure_queue", f"configure queue {target.queue!r}", **parameters).rows(connection)


def configure_channel(
    connection: Connection,
    target: Target,
    channel: str,
    changes: PolicyChanges,
    *,
    policy: ChannelPolicy,
    plan: str | Unset | None = UNSET,
    reset: Collection[str] = (),
    notify: bool,
) -> None:
    """Change the policy of a channel. A new channel starts with the queue's defaults, or else with *policy*.

    Args:
        connection: In a transaction.
        target: The queue.
        channel: The channel.
        changes: The fields to change.
        policy: Of a channel that is new, if the queue has no defaults.
        plan: The plan that it follows. None: none.
        reset: Fields that the plan decides again.
        notify: Whether consumers are woken.
    """
    parameters = {
        "channel": channel,
        "changes": channel_changes_json(changes, plan, reset),
        "policy": new_policy_json(policy),
        "notify": may_notify(connection, notify),
    }
    doing = f"configure {_named(target, channel)}"
    target.call("fq_configure_channel", doing, **parameters).rows(connection)


def limit_queue(connection: Connection, target: Target, changes: QueueLimits, *, notify: bool) -> None:
    """Change limits of the whole queue: ``max_concurrency``, ``rate``, names of shared ``limits``. None: no limit."""
    columns = json.dumps(column_values(SETTINGS, changes))
    parameters = {"changes": columns, "notify": may_notify(connection, notify)}
    target.call("fq_limit_queue", f"limit queue {target.queue!r}", **parameters).rows(connection)


def configure_limit(connection: Connection, schema: str | None, name: str, changes: PolicyChanges) -> None:
    """Make a shared limit, or change its ``max_concurrency`` or ``rate``. None: no limit."""
    doing = f"configure limit {name!r}"
    call(schema, "fq_configure_limit", doing, name=name, changes=policy_json(changes)).rows(connection)


def limits(
    connection: Connection, schema: str | None, name: str | None = None, *, queue: str | None = None
) -> list[SharedLimit]:
    """Return the shared limits by name; only that one, or only those that a queue draws from."""
    return limits_by_queue(connection, schema, [queue], name=name)[queue]


def limits_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[Q], *, name: str | None = None
) -> dict[Q, list[SharedLimit]]:
    """Return the shared limits that queues draw from, by one statement. None for a queue: all limits."""
    found = read_by_queue(connection, schema, "fq_limits", "list the limits", queues, name=name)
    return {queue: [_limit(**row) for row in rows] for queue, rows in found.items()}


def _limit(
    rate_interval: int, rate_burst: int, queues: Sequence[str], leased: Sequence[int], **others: Any
) -> SharedLimit:
    rate = Rate.of(duration(rate_interval), rate_burst)
    return SharedLimit(rate=rate, queues=tuple(queues), leased=tuple(leased), **others)


def set_queue(connection: Connection, target: Target, changes: QueueChanges) -> None:
    """Change settings of a queue: those that are neither its limits nor its defaults."""
    parameters = {"settings": json.dumps(column_values(SETTINGS, changes))}
    target.call("fq_set_queue", f"configure queue {target.queue!r}", **parameters).rows(connection)


def pause(connection: Connection, target: Target, channel: str | None, *, new: bool) -> None:
    """Stop serving a channel, or with None the whole queue. *new*: a channel that does not exist is made."""
    doing = f"pause {_named(target, channel)}"
    try:
        target.call("fq_pause", doing, channel=channel, new=new).rows(connection)
    except UnknownChannel as error:
        advice = "correct the name, or pause(..., new=True) makes the channel"
        raise _unknown_channel(target, channel, advice) from error


def resume(connection: Connection, target: Target, channel: str | None, *, notify: bool) -> None:
    """Go on serving a channel, or with None the whole queue."""
    notify = may_notify(connection, notify)
    doing = f"resume {_named(target, channel)}"
    try:
        target.call("fq_resume", doing, channel=channel, notify=notify).rows(connection)
    except UnknownChannel as error:
        raise _unknown_channel(target, channel, "correct the name") from error


def lock_channels(connection: Connection, target: Target, channels: Mapping[str, ChannelPolicy | None]) -> None:
    """Lock the state of channels, in the order of their names.

    Args:
        connection: In a transaction.
        target: The queue.
        channels: Each with the policy with which it is made if it is new; None: then it is passed over.
    """
    policies = [None if policy is None else new_policy_json(policy) or "{}" for policy in channels.values()]
    parameters = {"names": list(channels), "policies": policies}
    doing = f"lock {len(channels)} channels of queue {target.queue!r}"
    target.call("fq_lock_channels", doing, **parameters).rows(connection)


def _unknown_channel(target: Target, channel: str | None, advice: str) -> UnknownChannel:
    problem = f"queue {target.queue!r} has no channel {channel!r}; {advice}"
    return UnknownChannel(problem, target.queue, channel)


def _named(target: Target, channel: str | None) -> str:
    return f"queue {target.queue!r}" if channel is None else f"channel {channel!r} of queue {target.queue!r}"


def queue_settings(connection: Connection, schema: str | None, queue: str | None = None) -> dict[str, QueueSettings]:
    """Return the settings of a queue, or of all configured queues, by name."""
    doing = "read the settings of the queues" if queue is None else f"read the settings of queue {queue!r}"
    rows = call(schema, "fq_queue_settings", doing, queue=queue).rows(connection)
    return {row.queue: QueueSettings.of_columns(row._asdict()) for row in rows}


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
    """Return the plans of a queue by name; with *name* only that plan."""
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
    """Return a page of the channels that follow a plan, in the order of their ids.

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
