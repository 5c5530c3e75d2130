"""Drivers of PostgreSQL that the queue works on: what differs between them, and nothing else.

SQLAlchemy hides most of it. What it does not hide is here: how arrays and row ids are encoded, how contents come back
as bytes, and how a connection listens for notifications. A driver is a
class of a few methods (``base``); a new one goes into ``_DRIVERS`` and must pass ``tests/drivers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.drivers.asyncpg import Asyncpg
from sqlalchemy_fairqueue.database.drivers.base import Driver, Listener, NumberedStatement, is_in_autocommit
from sqlalchemy_fairqueue.database.drivers.psycopg import Psycopg
from sqlalchemy_fairqueue.database.drivers.psycopg2 import Psycopg2
from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = [
    "Driver",
    "Listener",
    "NumberedStatement",
    "driver_of",
    "is_in_autocommit",
]

_DRIVERS: dict[tuple[str, str], Driver] = {
    ("postgresql", driver.name): driver for driver in (Psycopg(), Psycopg2(), Asyncpg())
}


def driver_of(bind: Engine | Connection) -> Driver:
    """The driver under an engine or connection.

    Raises:
        InvalidArgument: Another database or driver than those that the queue works on.
    """
    dialect = bind.dialect
    found = _DRIVERS.get((dialect.name, dialect.driver))
    if found is None:
        examples = " or ".join(driver.example for driver in _DRIVERS.values())
        raise InvalidArgument(f"the engine speaks {dialect.name}+{dialect.driver}; the queue needs {examples}")
    return found
