"""Percentiles by nearest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.reporting.figures import Spread
from sqlalchemy_fairqueue.times import duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_PERCENTILES = (500, 950, 990)
_THOUSAND = 1000


def grouped(values: Numbers, ends: Numbers) -> list[tuple[int, ...]]:
    """The percentiles and the maximum of each group of values that lie one behind the other; *values* is reordered."""
    found, begin = [], 0
    for end in ends.tolist():
        found.append(nearest_ranks(values[begin:end]) if end > begin else ())
        begin = end
    return found


def nearest_ranks(values: Numbers) -> tuple[int, ...]:
    """The percentiles by nearest rank, and the maximum."""
    count = len(values)
    ranks = [(count * percentile + _THOUSAND - 1) // _THOUSAND - 1 for percentile in _PERCENTILES]
    values.partition([*ranks, count - 1])
    return (*(int(values[rank]) for rank in ranks), int(values[-1]))


def spread_of(values: Numbers) -> Spread:
    """The spread of durations in microseconds; *values* is reordered."""
    return Spread(*map(duration, nearest_ranks(values)))
