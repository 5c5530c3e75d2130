"""Old path of ``queue.handlers``, for modules that still import it."""

from sqlalchemy_fairqueue.queue.handlers import Handler

__all__ = ["Handler"]
