"""Old path of ``database.calls.qualifier``, for modules that still import it."""

from sqlalchemy_fairqueue.database.calls import qualifier

__all__ = ["qualifier"]
