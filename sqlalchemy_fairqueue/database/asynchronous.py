"""Asyncio classes of SQLAlchemy, or stand-ins where they cannot be imported.

The classes need greenlet, which SQLAlchemy 2.1 no longer installs by itself. An application without greenlet cannot
make objects of them, and no object is an instance of a stand-in. So ``isinstance`` is right in both cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
else:
    try:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
    except ImportError:

        class AsyncConnection:
            """Stands in for a class that needs greenlet."""

        class AsyncEngine:
            """Stands in for a class that needs greenlet."""

        class AsyncSession:
            """Stands in for a class that needs greenlet."""

        class async_scoped_session:  # noqa: N801 - named as what it stands for
            """Stands in for a class that needs greenlet."""


__all__ = ["AsyncConnection", "AsyncEngine", "AsyncSession", "async_scoped_session"]
