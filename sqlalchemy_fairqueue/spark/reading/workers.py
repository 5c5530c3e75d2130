"""Spark's Python workers, which plan and read, and are used for one query after another."""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def spare_modules() -> None:
    """Have Spark's garbage collection leave out what this worker has imported; in any other process nothing.

    Spark collects after whatever a worker did. Four workers are busy with a read by two tasks, and each would look at
    all objects of SQLAlchemy, pandas and this package every time, for longer than a read of 10,000 rows takes.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON and not gc.get_freeze_count():
        gc.freeze()
