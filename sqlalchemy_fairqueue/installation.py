"""Old path of ``database.versions`` and ``database.migrations``, for modules that still import it."""

from sqlalchemy_fairqueue.database.migrations import to_upgrade, too_old
from sqlalchemy_fairqueue.database.versions import check_installed

__all__ = ["check_installed", "to_upgrade", "too_old"]
