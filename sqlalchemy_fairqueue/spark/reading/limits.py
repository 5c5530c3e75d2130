"""Read limits of micro-batches, as Spark defines them. PySpark 4.1 has none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass

    LIMITS_ARE_KNOWN = True

    @dataclass
    class ReadAllAvailable:
        """No limit."""

    @dataclass
    class ReadMaxRows:
        """At most so many rows."""

        max_rows: int

    class AvailableNow:
        """A reader that supports the trigger AvailableNow."""

else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

        LIMITS_ARE_KNOWN = True
    except ImportError:
        LIMITS_ARE_KNOWN = False

        class ReadAllAvailable:
            """Not used by this PySpark."""

        class ReadMaxRows:
            """Not used by this PySpark."""

        class AvailableNow:
            """Not used by this PySpark."""
