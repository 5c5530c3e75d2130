"""SQLAlchemy's asyncio classes, or stand-ins if greenlet is missing (SQLAlchemy 2.1 no longer installs it by itself).

Without greenlet an application has no objects of these classes, so ``isinstance`` with a stand-in is rightly False.
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
            """Stand-in for SQLAlchemy's class of this name, which needs greenlet."""

        class AsyncEngine:
            """Stand-in."""

        class AsyncSession:
            """Stand-in."""

        class async_scoped_session:  # noqa: N801 - named as what it stands for
            """Stand-in."""


__all__ = ["AsyncConnection", "AsyncEngine", "AsyncSession", "async_scoped_session"]
