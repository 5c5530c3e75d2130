"""Filters that the server evaluates instead of Spark.

A filter is pushed down only if the server and Spark mean the same by it: equality of texts that are never null, and
comparisons of the time when an attempt ended. All others stay with Spark.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.types import StringType, TimestampType

from sqlalchemy_fairqueue.spark.reading.queries import Condition
from sqlalchemy_fairqueue.times import instant_microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from sqlalchemy_fairqueue.spark.reading.tables import Column, Table

_COMPARISONS: dict[type, str] = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}


def pushed_down(filters: Iterable[Filter], table: Table) -> tuple[Condition, list[Filter]]:
    """The condition of the filters that the server evaluates, and the filters that are left to Spark."""
    columns = {column.name: column for column in table.columns}
    condition = Condition()
    left: list[Filter] = []
    for number, one in enumerate(filters):
        path: tuple[str, ...] = getattr(one, "attribute", ())
        column = columns.get(path[0]) if len(path) == 1 else None
        clause = None if column is None else _clause(one, column, f"pushed{number}")
        if clause is None:
            left.append(one)
        else:
            condition = condition.also(clause[0], **clause[1])
    return condition, left


def _clause(one: Filter, column: Column, name: str) -> tuple[str, dict[str, object]] | None:
    if column.type == StringType():
        if isinstance(one, EqualTo) and isinstance(one.value, str):
            return (f"{column.sql} = %({name})s::text", {name: one.value}) if _is_storable(one.value) else ("false", {})
        if isinstance(one, In) and all(isinstance(value, str) for value in one.value):
            return f"{column.sql} = any(%({name})s::text[])", {name: list(filter(_is_storable, one.value))}
    comparison = _COMPARISONS.get(type(one))
    if comparison and column.type == TimestampType():
        value = getattr(one, "value", None)
        if isinstance(value, datetime) and value.tzinfo is not None:
            return f"{column.sql} {comparison} %({name})s::bigint", {name: instant_microseconds(value)}
    return None


def _is_storable(text: str) -> bool:
    """Whether a column can hold the text; one that it cannot hold equals none that is there."""
    return re.search("[\0\ud800-\udfff]", text) is None
