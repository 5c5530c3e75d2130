"""The supported drivers of PostgreSQL, and the differences between them that SQLAlchemy does not hide.

A driver is a class with a few methods (``base``); add a new driver to ``DRIVERS``, and let it pass ``tests/drivers``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.drivers.base import Driver, Listener, NumberedStatement
from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["DRIVERS", "Driver", "Listener", "NumberedStatement", "driver_of"]

_CLASSES = {"psycopg": "Psycopg", "psycopg2": "Psycopg2", "asyncpg": "Asyncpg"}


class _Drivers(dict[tuple[str, str], Driver]):
    def __missing__(self, key: tuple[str, str]) -> Driver:
        """Import the driver's module at the first engine on it: an application may lack the other drivers."""
        database, name = key
        if database != "postgresql" or name not in _CLASSES:
            raise InvalidArgument(
                f"the engine speaks {database}+{name}; the queue needs create_engine('postgresql+psycopg://...') or "
                "create_engine('postgresql+psycopg2://...') or create_async_engine('postgresql+asyncpg://...')"
            )
        module = import_module(f"{__name__}.{name}")
        return self.setdefault(key, getattr(module, _CLASSES[name])())


DRIVERS = _Drivers()


def driver_of(bind: Engine | Connection) -> Driver:
    """Return the driver of an engine or connection; an unsupported one raises InvalidArgument."""
    dialect = bind.dialect
    return DRIVERS[dialect.name, dialect.driver]
