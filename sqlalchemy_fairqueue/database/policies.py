"""Channel policies as the SQL functions take and return them: JSON objects and columns."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.times import duration, microseconds
from sqlalchemy_fairqueue.values import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy_fairqueue.values import PolicyChanges

# A field's column has its name, but for this one.
_COLUMNS = {"on_full": "drop_when_full"}


def policy_json(values: PolicyChanges | Mapping[str, object]) -> str:
    """Fields of a policy as the functions take them: by the names of their columns, durations in microseconds."""
    return json.dumps({_COLUMNS.get(name, name): _column_value(name, value) for name, value in values.items()})


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
        value = columns[_COLUMNS.get(field.name, field.name)]
        if isinstance(field.default, timedelta):
            value = duration(value)
        elif field.name == "on_full":
            value = "drop" if value else "raise"
        values[field.name] = value
    return values


def policy_columns() -> frozenset[str]:
    """The names of a policy's columns."""
    return frozenset(_COLUMNS.get(field.name, field.name) for field in fields(ChannelPolicy))


def _column_value(name: str, value: object) -> object:
    if isinstance(value, timedelta):
        return microseconds(value)
    return value == "drop" if name == "on_full" else value
