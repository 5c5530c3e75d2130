"""Policies and settings as JSON for SQL functions, and readings of the configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import Q, call, read_by_queue
from sqlalchemy_fairqueue.errors import UnknownChannel
from sqlalchemy_fairqueue.values.policies import POLICY, RATE, UNSET, ChannelPolicy, policy_values, rate_of_columns
from sqlalchemy_fairqueue.values.reports import PlanInfo, SharedLimit
from sqlalchemy_fairqueue.values.settings import SETTINGS, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.values.fields import Definition
    from sqlalchemy_fairqueue.values.policies import PolicyChanges, Unset


def channel_changes_json(changes: PolicyChanges, plan: str | Unset | None, reset: Collection[str]) -> str:
    """Write changes of a channel as JSON: fields of its policy, its plan, fields to reset."""
    members = column_values(POLICY, changes)
    if plan is not UNSET:
        members["plan"] = plan
    if reset:
        members["reset"] = field_columns(reset)
    return json.dumps(members)


def policy_json(values: Mapping[str, object]) -> str:
    """Write fields of a policy as JSON, by column, with durations in microseconds."""
    return json.dumps(column_values(POLICY, values))


def settings_json(values: Mapping[str, object]) -> str:
    """Write settings of a queue as JSON, as :func:`policy_json` writes fields of a policy."""
    return json.dumps(column_values(SETTINGS, values))


@lru_cache(maxsize=256)
def new_policy_json(policy: ChannelPolicy) -> str | None:
    """Write the whole policy of new channels as JSON; None for the initial policy, which the functions know."""
    if policy == ChannelPolicy():
        return None
    return policy_json({name: getattr(policy, name) for name in POLICY})


def field_columns(names: Iterable[str]) -> list[str]:
    return [column for name in names for column in POLICY[name].columns(name)]


def fields_of_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the fields that have one of the columns, in the order of their definition."""
    found = set(columns)
    return tuple(name for name, definition in POLICY.items() if found.intersection(definition.columns(name)))


def policy_columns() -> frozenset[str]:
    return frozenset(field_columns(POLICY))


def column_values(definitions: Mapping[str, Definition], values: Mapping[str, object]) -> dict[str, object]:
    columns: dict[str, object] = {}
    for name, value in values.items():
        columns |= definitions[name].column_values(name, value)
    return columns


def read_limits(
    connection: Connection, schema: str | None, name: str | None = None, *, queue: str | None = None
) -> list[SharedLimit]:
    """Return the shared limits by name: one, those of a queue, or all."""
    return limits_by_queue(connection, schema, [queue], name=name)[queue]


def limits_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[Q], *, name: str | None = None
) -> dict[Q, list[SharedLimit]]:
    """Return the shared limits of queues, in one statement. None as a queue means all limits."""
    found = read_by_queue(connection, schema, "fq_limits", "list the limits", queues, name=name)
    return {queue: [_limit(row) for row in rows] for queue, rows in found.items()}


def _limit(row: dict[str, Any]) -> SharedLimit:
    others = {name: tuple(row[name]) if isinstance(row[name], list) else row[name] for name in row if name not in RATE}
    values: dict[str, Any] = {"rate": rate_of_columns(row), **others}
    return SharedLimit(**values)


def pause_channel(connection: Connection, target: Target, channel: str | None, *, new: bool) -> None:
    """Stop serving a channel, or the whole queue if it is None. *new* creates a missing channel."""
    doing = f"pause {target.named(channel)}"
    try:
        target.call("fq_pause", doing, channel=channel, new=new).rows(connection)
    except UnknownChannel as error:
        advice = "correct the name, or pause(..., new=True) makes the channel"
        raise _unknown_channel(target, channel, advice) from error


def resume_channel(connection: Connection, target: Target, channel: str | None) -> None:
    doing = f"resume {target.named(channel)}"
    try:
        target.call("fq_resume", doing, channel=channel, notify=target.notify).rows(connection)
    except UnknownChannel as error:
        raise _unknown_channel(target, channel, "correct the name") from error


def _unknown_channel(target: Target, channel: str | None, advice: str) -> UnknownChannel:
    return UnknownChannel(f"{target.named()} has no channel {channel!r}; {advice}", target.queue, channel)


def queue_settings(connection: Connection, schema: str | None, queue: str | None = None) -> dict[str, QueueSettings]:
    doing = "read the settings of the queues" if queue is None else f"read the settings of queue {queue!r}"
    rows = call(schema, "fq_queue_settings", doing, queue=queue).rows(connection)
    return {row.queue: QueueSettings.of_columns(row._asdict()) for row in rows}


def read_plans(connection: Connection, target: Target, name: str | None) -> list[PlanInfo]:
    doing = f"list the plans of queue {target.queue!r}"
    rows = target.read(connection, "fq_plans", doing, name=name)
    return [PlanInfo(policy=ChannelPolicy(**policy_values(row.pop("policy"))), **row) for row in rows]


@dataclass(frozen=True, slots=True)
class Follower:
    """A channel that follows a plan.

    Attributes:
        channel_id: The order of the list.
        overridden: The fields of its policy that were configured for it alone.
    """

    channel_id: int
    channel: str
    overridden: tuple[str, ...]


def read_plan_channels(
    connection: Connection, target: Target, name: str, *, after: int | None = None, limit: int
) -> list[Follower]:
    """Return a page of the channels that follow a plan, in the order of their ids, after the id *after*."""
    parameters = {"plan": name, "after": after, "limit": limit}
    doing = f"list the channels of plan {name!r} of queue {target.queue!r}"
    rows = target.read(connection, "fq_plan_channels", doing, **parameters)
    return [Follower(overridden=fields_of_columns(row.pop("overridden")), **row) for row in rows]
