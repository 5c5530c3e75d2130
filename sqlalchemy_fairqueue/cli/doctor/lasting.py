"""What is there for longer than a moment, where the server does not tell since when."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from sqlalchemy import Connection, Row

_LOOKS = 20
_BETWEEN_LOOKS = 0.1
# Else sessions are told the same at each look of a transaction.
_LOOK_AGAIN = text("select pg_stat_clear_snapshot()")


def _any(_before: Row[Any], _after: Row[Any]) -> bool:
    return True


def lasting(
    connection: Connection,
    look: Callable[[], Mapping[Hashable, Row[Any]]],
    same: Callable[[Row[Any], Row[Any]], bool] = _any,
) -> list[Row[Any]]:
    """What *look* finds now and at each further look, for two seconds; done at once where nothing is left.

    Args:
        connection: Where it looks.
        look: Finds rows by what they are known by.
        same: Whether a row that was seen before and now is about the same affair.
    """
    connection.execute(_LOOK_AGAIN)
    held = look()
    for _ in range(_LOOKS):
        if not held:
            break
        sleep(_BETWEEN_LOOKS)
        connection.execute(_LOOK_AGAIN)
        now = look()
        held = {key: now[key] for key, row in held.items() if key in now and same(row, now[key])}
    return list(held.values())
