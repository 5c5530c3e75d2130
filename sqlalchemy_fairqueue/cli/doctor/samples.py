"""Samples of the server's state, taken again and again: they tell what lasts from what is over in a moment.

For states of which the server does not record when they began.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from sqlalchemy import Connection, Row

_SAMPLES = 20
_INTERVAL_SECONDS = 0.1
# Within a transaction, PostgreSQL repeats its first answer about sessions until the snapshot is cleared.
_CLEAR = text("select pg_stat_clear_snapshot()")


def _always(_before: Row[Any], _after: Row[Any]) -> bool:
    return True


def persistent_rows(
    connection: Connection,
    sample: Callable[[], Mapping[Hashable, Row[Any]]],
    is_same: Callable[[Row[Any], Row[Any]], bool] = _always,
) -> list[Row[Any]]:
    """The rows that every sample of two seconds has. It returns at once when no row is left.

    Args:
        connection: The connection of the samples.
        sample: Takes one: rows by their identity.
        is_same: Whether two rows of the same identity, one before and one now, tell of the same state.
    """
    connection.execute(_CLEAR)
    kept = sample()
    for _ in range(_SAMPLES):
        if not kept:
            break
        sleep(_INTERVAL_SECONDS)
        connection.execute(_CLEAR)
        now = sample()
        kept = {key: now[key] for key, row in kept.items() if key in now and is_same(row, now[key])}
    return list(kept.values())
