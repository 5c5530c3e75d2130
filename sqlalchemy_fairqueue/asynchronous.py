"""Old path of ``database.asynchronous``, for modules that still import it."""

from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session

__all__ = ["AsyncConnection", "AsyncEngine", "AsyncSession", "async_scoped_session"]
