"""Python workers of Spark, which plan and read one query after another."""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def freeze_modules() -> None:
    """Exclude imported modules from the garbage collection of this worker; in any other process do nothing.

    Spark collects garbage after each task of a worker. A read by two tasks uses four workers, and each would visit all
    objects of SQLAlchemy, pandas and this package every time, which takes longer than a read of 10,000 rows.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON and not gc.get_freeze_count():
        gc.freeze()
