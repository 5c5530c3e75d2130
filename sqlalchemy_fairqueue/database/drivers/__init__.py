"""The supported drivers of PostgreSQL, and the differences between them that SQLAlchemy does not hide.

A driver is a class with a few methods (``base``); add a new driver to ``_CLASSES``, and let it pass ``tests/drivers``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.drivers.base import Driver, Listener, NumberedStatement, set_options
from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["Driver", "Listener", "NumberedStatement", "driver_of", "driver_of_dialect", "set_options"]

_CLASSES = {"psycopg": "Psycopg", "psycopg2": "Psycopg2", "asyncpg": "Asyncpg"}


@cache
def driver_of_dialect(database: str, name: str) -> Driver:
    if database != "postgresql" or name not in _CLASSES:
        raise InvalidArgument(
            f"the engine speaks {database}+{name}; the queue needs create_engine('postgresql+psycopg://...') or "
            "create_engine('postgresql+psycopg2://...') or create_async_engine('postgresql+asyncpg://...')"
        )
    # Imported only now, since an application may lack the other drivers.
    driver: Driver = getattr(import_module(f"{__name__}.{name}"), _CLASSES[name])()
    return driver


def driver_of(bind: Engine | Connection) -> Driver:
    dialect = bind.dialect
    return driver_of_dialect(dialect.name, dialect.driver)
