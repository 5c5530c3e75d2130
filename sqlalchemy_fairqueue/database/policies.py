"""Channel policies as the SQL functions take and return them: JSON objects, and the names of columns."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.values.policies import POLICY, UNSET, ChannelPolicy
from sqlalchemy_fairqueue.values.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy_fairqueue.values.fields import Definition
    from sqlalchemy_fairqueue.values.policies import PolicyChanges, Unset


def channel_changes_json(changes: PolicyChanges, plan: str | Unset | None, reset: Collection[str]) -> str:
    """Write changes of a channel as JSON: fields of its policy, its plan, fields that the plan decides again."""
    members = column_values(POLICY, changes)
    if plan is not UNSET:
        members["plan"] = plan
    if reset:
        members["reset"] = field_columns(reset)
    return json.dumps(members)


def policy_json(values: Mapping[str, object]) -> str:
    """Write fields of a policy as JSON, by the names of their columns, with durations in microseconds."""
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
    """Return the columns of fields."""
    return [column for name in names for column in POLICY[name].columns(name)]


def fields_of_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the fields that have one of the columns, in the order of their definition."""
    found = set(columns)
    return tuple(name for name, definition in POLICY.items() if found.intersection(definition.columns(name)))


def policy_columns() -> frozenset[str]:
    """Return the names of a policy's columns."""
    return frozenset(field_columns(POLICY))


def column_values(definitions: Mapping[str, Definition], values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of columns from the values of fields."""
    columns: dict[str, object] = {}
    for name, value in values.items():
        columns |= definitions[name].column_values(name, value)
    return columns
