"""Old path of ``queue.consumer``, for modules that still import it."""

from sqlalchemy_fairqueue.queue.consumer import Consumer

__all__ = ["Consumer"]
