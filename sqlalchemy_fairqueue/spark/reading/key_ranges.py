"""Ranges of keys, one a task. Together they cover every key: the first and the last are unbounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.spark.reading.queries import Condition

_ROWS_A_TASK = 250_000
_MAX_TASKS = 16


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of keys, its end excluded; None is no bound.

    Attributes:
        key: The expression of the key; ``h.recorded_xid`` is compared as xid8, others as numbers.
        low: The least key.
        high: The first key after the range.
    """

    key: str
    low: int | None
    high: int | None

    def narrow(self, condition: Condition) -> Condition:
        """The condition, restricted to these keys."""
        cast = "::text::xid8" if self.key.endswith("_xid") else ""
        if self.low is not None:
            condition = condition.also(f"{self.key} >= %(low)s{cast}", low=str(self.low) if cast else self.low)
        if self.high is not None:
            condition = condition.also(f"{self.key} < %(high)s{cast}", high=str(self.high) if cast else self.high)
        return condition


def key_ranges(key: str, low: int, high: int, count: int) -> list[KeyRange]:
    """At most *count* ranges of equal width, for keys from about *low* to *high*."""
    width = max(high - low + 1, 1)
    count = max(1, min(count, width))
    cuts = [low + width * part // count for part in range(1, count)]
    return [KeyRange(key, *first_and_last) for first_and_last in zip([None, *cuts], [*cuts, None], strict=True)]


def task_count(low: int, high: int, requested: int | None) -> int:
    """The number of tasks for about so many rows."""
    return requested or max(1, min(_MAX_TASKS, -(-(high - low) // _ROWS_A_TASK)))
