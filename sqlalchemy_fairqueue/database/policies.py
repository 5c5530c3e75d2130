"""Channel policies as the SQL functions take and return them: JSON objects and columns."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.times import duration, microseconds
from sqlalchemy_fairqueue.values import UNSET, ChannelPolicy, PolicyFields, Rate, policy_fields
from sqlalchemy_fairqueue.values.rates import checked_rate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy_fairqueue.values import PolicyChanges, Unset

_DURATIONS = {field.name for field in fields(PolicyFields) if "timedelta" in str(field.type)}
# A field's column has its name, but for these.
_COLUMNS = {"rate": ("rate_interval", "rate_burst"), "on_full": ("drop_when_full",)}


def channel_changes_json(changes: PolicyChanges, plan: str | Unset | None, reset: Collection[str]) -> str:
    """Changes of a channel: fields of its policy, its plan, and the fields that the plan decides again."""
    members: dict[str, object] = json.loads(policy_json(changes))
    if plan is not UNSET:
        members["plan"] = plan
    if reset:
        members["reset"] = field_columns(reset)
    return json.dumps(members)


def policy_json(values: PolicyChanges | Mapping[str, object]) -> str:
    """Fields of a policy as the functions take them: by the names of their columns, durations in microseconds."""
    columns: dict[str, object] = {}
    for name, value in values.items():
        columns |= _column_values(name, value)
    return json.dumps(columns)


@lru_cache(maxsize=256)
def new_policy_json(policy: ChannelPolicy) -> str | None:
    """The whole policy for channels that are new. None for one without limits, which the functions take for granted."""
    if policy == ChannelPolicy():
        return None
    return policy_json({field.name: getattr(policy, field.name) for field in fields(policy)})


def policy_values(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a policy from columns of a row, or members of a JSON object, that may have others too."""
    values: dict[str, Any] = {}
    for field in fields(ChannelPolicy):
        match field.name:
            case "rate":
                values["rate"] = Rate.of(duration(columns["rate_interval"]), columns["rate_burst"])
            case "on_full":
                values["on_full"] = "drop" if columns["drop_when_full"] else "raise"
            case name if name in _DURATIONS:
                values[name] = None if columns[name] is None else duration(columns[name])
            case name:
                values[name] = columns[name]
    return values


def field_columns(names: Iterable[str]) -> list[str]:
    """The columns of fields."""
    return [column for name in names for column in _COLUMNS.get(name, (name,))]


def fields_of_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """The fields that have one of the columns, in their order."""
    found = set(columns)
    return tuple(name for name in policy_fields() if found.intersection(_COLUMNS.get(name, (name,))))


def policy_columns() -> frozenset[str]:
    """The names of a policy's columns."""
    return frozenset(column for field in fields(ChannelPolicy) for column in _COLUMNS.get(field.name, (field.name,)))


def _column_values(name: str, value: object) -> dict[str, object]:
    match name:
        case "rate":
            rate = checked_rate(name, value)
            return {
                "rate_interval": 0 if rate is None else microseconds(rate.interval),
                "rate_burst": 1 if rate is None else rate.burst,
            }
        case "on_full":
            return {"drop_when_full": value == "drop"}
        case _ if isinstance(value, timedelta):
            return {name: microseconds(value)}
        case _:
            return {name: value}
