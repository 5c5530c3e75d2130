"""Writes policies and settings as JSON for SQL functions, and reads the configuration of queues."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.calls import Q, Target, call, read_by_queue
from sqlalchemy_fairqueue.values.policies import POLICY, UNSET, ChannelPolicy, PolicyChanges, Unset, policy_values
from sqlalchemy_fairqueue.values.reports import PlanInfo, SharedLimit
from sqlalchemy_fairqueue.values.settings import SETTINGS, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.values.fields import Definition


def channel_changes_json(changes: PolicyChanges, plan: str | Unset | None, reset: Collection[str]) -> str:
    members = column_values(POLICY, changes)
    if plan is not UNSET:
        members["plan"] = plan
    if reset:
        members["reset"] = field_columns(reset)
    return json.dumps(members)


def policy_json(values: Mapping[str, object]) -> str:
    """Return fields of a policy as a JSON object. Its keys are the names of columns; durations are in microseconds."""
    return json.dumps(column_values(POLICY, values))


def settings_json(values: Mapping[str, Any]) -> str:
    columns = column_values(SETTINGS, values)
    if "defaults" in values:
        columns["defaults"] = column_values(POLICY, values["defaults"])
    return json.dumps(columns)


def new_policy_json(policy: ChannelPolicy) -> str | None:
    # SQL functions use this policy by default.
    if policy == ChannelPolicy():
        return None
    return policy_json({name: getattr(policy, name) for name in POLICY})


def field_columns(names: Iterable[str]) -> list[str]:
    return [column for name in names for column in POLICY[name].columns(name)]


def column_values(definitions: Mapping[str, Definition], values: Mapping[str, object]) -> dict[str, object]:
    columns: dict[str, object] = {}
    for name, value in values.items():
        columns |= definitions[name].column_values(name, value)
    return columns


def read_limits(
    connection: Connection, schema: str | None, name: str | None = None, *, queue: str | None = None
) -> list[SharedLimit]:
    return limits_by_queue(connection, schema, [queue], name=name)[queue]


def limits_by_queue(
    connection: Connection, schema: str | None, queues: Sequence[Q], *, name: str | None = None
) -> dict[Q, list[SharedLimit]]:
    """Return the shared limits of each queue; for None in *queues*, all shared limits. *name* selects one limit."""

    def limit(*, queue: Q, **row: Any) -> SharedLimit:  # noqa: ARG001 - a limit has several
        return SharedLimit(**row)

    return read_by_queue(connection, schema, "fq_limits", "list the limits of", limit, queues, name=name)


def queue_settings(connection: Connection, schema: str | None, queue: str | None = None) -> dict[str, QueueSettings]:
    doing = "read the settings of the queues" if queue is None else "read the settings of"
    rows = call(schema, "fq_queue_settings", doing, queue=queue).rows(connection)
    return {row.queue: QueueSettings.of_columns(row.settings) for row in rows}


def read_plans(connection: Connection, target: Target, name: str | None) -> list[PlanInfo]:

    def plan(*, policy: dict[str, Any], **row: Any) -> PlanInfo:
        return PlanInfo(policy=ChannelPolicy(**policy_values(policy)), **row)

    return target.read(connection, "fq_plans", "list the plans of", plan, name=name)


@dataclass(frozen=True, slots=True)
class Follower:
    """A channel that follows a plan; *overridden* are the fields of its policy that were configured for it alone."""

    channel_id: int
    channel: str
    overridden: tuple[str, ...]


def read_plan_channels(
    connection: Connection, target: Target, name: str, *, after: int | None = None, limit: int
) -> list[Follower]:
    doing = f"list the channels of plan {name!r} of"
    return target.read(connection, "fq_plan_channels", doing, Follower, plan=name, after=after, limit=limit)
