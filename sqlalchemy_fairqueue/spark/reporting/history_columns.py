"""Columns of a history in a frame, and the check of those that a replay needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, IntegralType, StringType, TimestampNTZType, TimestampType

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.simulation.trace import COLUMNS, COST, PRIORITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TYPES = {
    "id": "long",
    "queue": "string",
    "channel_id": "long",
    "channel": "string",
    "message_id": "long",
    "kind": "string",
    "consumer": "string",
    "attempt": "int",
    "enqueued_at": "timestamp",
    "ready_at": "timestamp",
    "started_at": "timestamp",
    "finished_at": "timestamp",
    "outcome": "string",
    "error": "string",
    "recorded_xid": "long",
    "cost": "long",
}
"""The type of each column of a history."""

_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "long": (IntegralType,),
    "int": (IntegralType,),
    "string": (StringType,),
    "timestamp": (TimestampType, TimestampNTZType),
}


def check_replayed_columns(history: DataFrame) -> None:
    """Refuse what cannot be replayed.

    Raises:
        InvalidArgument: A column is missing or of another type.
    """
    missing = [name for name in COLUMNS if name not in history.columns]
    if missing:
        raise InvalidArgument(
            f"the history lacks {', '.join(missing)}: it has {', '.join(history.columns)}; "
            'read it by format("fairqueue") or from an archive'
        )
    wanted = {name: TYPES[name] for name in COLUMNS}
    wanted |= {name: kind for name, kind in ((PRIORITY, "int"), (COST, "long")) if name in history.columns}
    for name, kind in wanted.items():
        found = history.schema[name].dataType
        if not isinstance(found, _KINDS[kind]):
            raise InvalidArgument(f"column {name} of the history is {found.simpleString()}; make it {kind}")
