"""Configuration of a queue and its channels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy_fairqueue.database.calls import call, fetch, may_notify, once_a_schema
from sqlalchemy_fairqueue.database.policies import channel_changes_json, column_values, new_policy_json, policy_json
from sqlalchemy_fairqueue.errors import UnknownChannel
from sqlalchemy_fairqueue.times import any_instant, duration
from sqlalchemy_fairqueue.values import SETTINGS, UNSET, QueueSettings, Rate, SharedLimit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Clause
    from sqlalchemy_fairqueue.database.targets import Target
    from sqlalchemy_fairqueue.values import ChannelPolicy, PolicyChanges, QueueChanges, QueueLimits, Unset

Q = TypeVar("Q", bound="str | None")


@once_a_schema
def configure_queue_clause(schema: str | None) -> Clause:
    """``fq_configure_queue``."""
    return call(schema, "fq_configure_queue", "1", queue="text", changes="jsonb", policy="jsonb")


def configure_queue(connection: Connection, target: Target, changes: PolicyChanges, *, policy: ChannelPolicy) -> None:
    """Change the policy that new channels of a queue start with; before the first change it is *policy*."""
    parameters = {"queue": target.queue, "changes": policy_json(changes), "policy": new_policy_json(policy)}
    fetch(connection, configure_queue_clause(target.schema), parameters, f"configure queue {target.queue!r}")


@once_a_schema
def configure_channel_clause(schema: str | None) -> Clause:
    """``fq_configure_channel``."""
    return call(
        schema,
        "fq_configure_channel",
        "1",
        queue="text",
        channel="text",
        changes="jsonb",
        policy="jsonb",
        notify="boolean",
    )


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
    """Change the policy of a channel. One that is new starts with the queue's defaults, or else with *policy*.

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
        "queue": target.queue,
        "channel": channel,
        "changes": channel_changes_json(changes, plan, reset),
        "policy": new_policy_json(policy),
        "notify": may_notify(connection, notify),
    }
    fetch(connection, configure_channel_clause(target.schema), parameters, f"configure {_named(target, channel)}")


@once_a_schema
def limit_queue_clause(schema: str | None) -> Clause:
    """``fq_limit_queue``."""
    return call(schema, "fq_limit_queue", "1", queue="text", changes="jsonb", notify="boolean")


def limit_queue(connection: Connection, target: Target, changes: QueueLimits, *, notify: bool) -> None:
    """Change limits of the whole queue: ``max_concurrency``, ``rate``, names of shared ``limits``. None: no limit."""
    parameters = {
        "queue": target.queue,
        "changes": json.dumps(column_values(SETTINGS, changes)),
        "notify": may_notify(connection, notify),
    }
    fetch(connection, limit_queue_clause(target.schema), parameters, f"limit queue {target.queue!r}")


@once_a_schema
def configure_limit_clause(schema: str | None) -> Clause:
    """``fq_configure_limit``."""
    return call(schema, "fq_configure_limit", "1", name="text", changes="jsonb")


def configure_limit(connection: Connection, schema: str | None, name: str, changes: PolicyChanges) -> None:
    """Make a shared limit, or change its ``max_concurrency`` or ``rate``. None: no limit."""
    parameters = {"name": name, "changes": policy_json(changes)}
    fetch(connection, configure_limit_clause(schema), parameters, f"configure limit {name!r}")


@once_a_schema
def remove_limit_clause(schema: str | None) -> Clause:
    """``fq_remove_limit``."""
    return call(schema, "fq_remove_limit", "fq_remove_limit as removed", name="text")


def remove_limit(connection: Connection, schema: str | None, name: str) -> None:
    """Remove a shared limit that no queue draws from. One that does not exist is no error."""
    fetch(connection, remove_limit_clause(schema), {"name": name}, f"remove limit {name!r}")


@once_a_schema
def limits_clause(schema: str | None) -> Clause:
    """``fq_limits``."""
    return call(schema, "fq_limits", "fq_limits.*", name="text", queue="text", each="queue")


def limits(
    connection: Connection, schema: str | None, name: str | None = None, *, queue: str | None = None
) -> list[SharedLimit]:
    """Return the shared limits by name; only that one, or only those that a queue draws from."""
    return limits_by_queue(connection, schema, [queue], name=name)[queue]


def limits_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[Q], *, name: str | None = None
) -> dict[Q, list[SharedLimit]]:
    """Return the shared limits that queues draw from, by one statement. None for a queue: all limits."""
    found: dict[Q, list[SharedLimit]] = {queue: [] for queue in queues}
    for row in fetch(connection, limits_clause(schema), {"name": name, "queue": list(queues)}, "list the limits"):
        found[queues[row.place - 1]].append(
            SharedLimit(
                name=row.name,
                max_concurrency=row.max_concurrency,
                rate=Rate.of(duration(row.rate_interval), row.rate_burst),
                rate_allows_at=None if row.rate_allows_at is None else any_instant(row.rate_allows_at),
                current_concurrency=row.current_concurrency,
                queues=tuple(row.queues),
                leased=tuple(row.leased),
            )
        )
    return found


@once_a_schema
def set_queue_clause(schema: str | None) -> Clause:
    """``fq_set_queue``."""
    return call(schema, "fq_set_queue", "1", queue="text", settings="jsonb")


def set_queue(connection: Connection, target: Target, changes: QueueChanges) -> None:
    """Change settings of a queue: those that are neither its limits nor its defaults."""
    parameters = {"queue": target.queue, "settings": json.dumps(column_values(SETTINGS, changes))}
    fetch(connection, set_queue_clause(target.schema), parameters, f"configure queue {target.queue!r}")


@once_a_schema
def pause_clause(schema: str | None) -> Clause:
    """``fq_pause``."""
    return call(schema, "fq_pause", "fq_pause as changed", queue="text", channel="text", new="boolean")


def pause(connection: Connection, target: Target, channel: str | None, *, new: bool) -> None:
    """Stop serving a channel, or with None the whole queue. *new*: a channel that does not exist is made."""
    parameters = {"queue": target.queue, "channel": channel, "new": new}
    try:
        fetch(connection, pause_clause(target.schema), parameters, f"pause {_named(target, channel)}")
    except UnknownChannel as error:
        advice = "correct the name, or pause(..., new=True) makes the channel"
        raise _unknown_channel(target, channel, advice) from error


@once_a_schema
def resume_clause(schema: str | None) -> Clause:
    """``fq_resume``."""
    return call(schema, "fq_resume", "fq_resume as changed", queue="text", channel="text", notify="boolean")


def resume(connection: Connection, target: Target, channel: str | None, *, notify: bool) -> None:
    """Go on serving a channel, or with None the whole queue."""
    parameters = {"queue": target.queue, "channel": channel, "notify": may_notify(connection, notify)}
    try:
        fetch(connection, resume_clause(target.schema), parameters, f"resume {_named(target, channel)}")
    except UnknownChannel as error:
        raise _unknown_channel(target, channel, "correct the name") from error


@once_a_schema
def lock_queue_clause(schema: str | None) -> Clause:
    """``fq_lock_queue``."""
    return call(schema, "fq_lock_queue", "1", queue="text")


def lock_queue(connection: Connection, target: Target) -> None:
    """Lock the row of a queue, made if it has none, as its configuration does."""
    fetch(connection, lock_queue_clause(target.schema), {"queue": target.queue}, f"lock queue {target.queue!r}")


@once_a_schema
def lock_gate_clause(schema: str | None) -> Clause:
    """``fq_lock_gate``."""
    return call(schema, "fq_lock_gate", "1", queue="text", limited="boolean")


def lock_gate(connection: Connection, target: Target) -> None:
    """Let nobody take messages of a queue without a limit until the transaction ends."""
    parameters = {"queue": target.queue, "limited": None}
    fetch(connection, lock_gate_clause(target.schema), parameters, f"close the gate of queue {target.queue!r}")


@once_a_schema
def lock_channels_clause(schema: str | None) -> Clause:
    """``fq_lock_channels``."""
    return call(schema, "fq_lock_channels", "1", queue="text", names="text[]", policies="jsonb[]")


def lock_channels(connection: Connection, target: Target, channels: Mapping[str, ChannelPolicy | None]) -> None:
    """Lock the state of channels, in the order of their names.

    Args:
        connection: In a transaction.
        target: The queue.
        channels: Each with the policy with which it is made if it is new; None: then it is passed over.
    """
    policies = [None if policy is None else new_policy_json(policy) or "{}" for policy in channels.values()]
    parameters = {"queue": target.queue, "names": list(channels), "policies": policies}
    doing = f"lock {len(channels)} channels of queue {target.queue!r}"
    fetch(connection, lock_channels_clause(target.schema), parameters, doing)


def _unknown_channel(target: Target, channel: str | None, advice: str) -> UnknownChannel:
    problem = f"queue {target.queue!r} has no channel {channel!r}; {advice}"
    return UnknownChannel(problem, target.queue, channel)


def _named(target: Target, channel: str | None) -> str:
    return f"queue {target.queue!r}" if channel is None else f"channel {channel!r} of queue {target.queue!r}"


@once_a_schema
def queue_settings_clause(schema: str | None) -> Clause:
    """``fq_queue_settings``."""
    return call(schema, "fq_queue_settings", "*", queue="text")


def queue_settings(connection: Connection, schema: str | None, queue: str | None = None) -> dict[str, QueueSettings]:
    """The settings of a queue, or of all that are configured, by name."""
    doing = "read the settings of the queues" if queue is None else f"read the settings of queue {queue!r}"
    rows = fetch(connection, queue_settings_clause(schema), {"queue": queue}, doing)
    return {row.queue: QueueSettings.of_columns(row._asdict()) for row in rows}
