"""Old path of ``database.engines``, for modules that still import it."""

from sqlalchemy_fairqueue.database.engines import arun, check_driver, refused, run

__all__ = ["arun", "check_driver", "refused", "run"]
