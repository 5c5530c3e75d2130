"""The supported drivers of PostgreSQL, and the differences between them that SQLAlchemy does not hide.

A driver is a class with a few methods (``base``); add a new driver to ``DRIVERS``, and let it pass ``tests/drivers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.drivers.asyncpg import Asyncpg
from sqlalchemy_fairqueue.database.drivers.base import Driver, Listener, NumberedStatement
from sqlalchemy_fairqueue.database.drivers.psycopg import Psycopg
from sqlalchemy_fairqueue.database.drivers.psycopg2 import Psycopg2
from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = [
    "DRIVERS",
    "Driver",
    "Listener",
    "NumberedStatement",
    "driver_of",
]


class _Drivers(dict[tuple[str, str], Driver]):
    def __missing__(self, key: tuple[str, str]) -> Driver:
        examples = " or ".join(driver.example for driver in self.values())
        raise InvalidArgument(f"the engine speaks {key[0]}+{key[1]}; the queue needs {examples}")


DRIVERS = _Drivers({("postgresql", driver.name): driver for driver in (Psycopg(), Psycopg2(), Asyncpg())})


def driver_of(bind: Engine | Connection) -> Driver:
    """Return the driver of an engine or connection; an unsupported one raises InvalidArgument."""
    dialect = bind.dialect
    return DRIVERS[dialect.name, dialect.driver]
