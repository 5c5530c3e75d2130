"""Spark's words for how much a micro-batch may read. PySpark 4.1 has none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass

    LIMITS_ARE_KNOWN = True

    @dataclass
    class ReadAllAvailable:
        """All that there is."""

    @dataclass
    class ReadMaxRows:
        """At most so many rows."""

        max_rows: int

    class AvailableNow:
        """What a reader is that knows where "now" ends."""

else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

        LIMITS_ARE_KNOWN = True
    except ImportError:
        LIMITS_ARE_KNOWN = False

        class ReadAllAvailable:
            """Never asked for."""

        class ReadMaxRows:
            """Never asked for."""

        class AvailableNow:
            """Never asked for."""
