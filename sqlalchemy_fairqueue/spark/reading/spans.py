"""Ranges of keys, one a task. Together they cover every key there may be: the first and the last have no end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.spark.reading.querying import Condition

_ROWS = 250_000
_MOST = 16


@dataclass(frozen=True, slots=True)
class Span:
    """Keys from one, included, to another, excluded; None is no bound.

    Attributes:
        key: The expression of the key; ``h.recorded_xid`` is compared as xid8, others as numbers.
        low: The least key.
        high: The first key that is not of it.
    """

    key: str
    low: int | None
    high: int | None

    def narrow(self, condition: Condition) -> Condition:
        """The condition, of these keys only."""
        cast = "::text::xid8" if self.key.endswith("_xid") else ""
        if self.low is not None:
            condition = condition.also(f"{self.key} >= %(low)s{cast}", low=str(self.low) if cast else self.low)
        if self.high is not None:
            condition = condition.also(f"{self.key} < %(high)s{cast}", high=str(self.high) if cast else self.high)
        return condition


def spans(key: str, low: int, high: int, count: int) -> list[Span]:
    """At most *count* spans of equal width, of keys that are about from *low* to *high*."""
    width = max(high - low + 1, 1)
    count = max(1, min(count, width))
    cuts = [low + width * part // count for part in range(1, count)]
    return [Span(key, *ends) for ends in zip([None, *cuts], [*cuts, None], strict=True)]


def parts_of(low: int, high: int, asked: int | None) -> int:
    """How many tasks share about so many rows."""
    return asked or max(1, min(_MOST, -(-(high - low) // _ROWS)))
