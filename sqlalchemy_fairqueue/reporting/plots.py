"""Drawings of a queue over time: the points of lines, which the page's template draws."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import groupby
from math import ceil, floor, log10
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy_fairqueue.reporting import formats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy_fairqueue.reporting.figures import QueueFigures

LEFT, RIGHT, TOP, BOTTOM = 64, 752, 8, 128
"""Edges of the lines in the picture."""

_DURATIONS = {
    1e-6: "1 \u00b5s", 1e-4: "100 \u00b5s", 1e-3: "1 ms", 0.01: "10 ms", 0.1: "100 ms", 1.0: "1 s", 10.0: "10 s",
    60.0: "1 min", 600.0: "10 min", 3_600.0: "1 h", 36_000.0: "10 h", 86_400.0: "1 d", 864_000.0: "10 d",
    8_640_000.0: "100 d",
}  # fmt: skip
_LONGEST = max(_DURATIONS)


class Drawing(NamedTuple):
    """A drawing.

    Attributes:
        title: A description for screen readers.
        lines: The label of each line, and its points; missing values interrupt it.
        ticks: Heights, with their texts.
        times: Places on the time axis, with their texts.
    """

    title: str
    lines: list[tuple[str, list[str]]]
    ticks: list[tuple[float, str]]
    times: list[tuple[float, str]]


def over_time(queue: QueueFigures) -> dict[str, Drawing]:
    windows, seconds = queue.windows, queue.window.total_seconds()
    rates = {
        "started": [window.started / seconds for window in windows],
        "completed": [window.completed / seconds for window in windows],
    }
    waiting = [float(window.waiting) for window in windows]
    waits = {
        name: [getattr(window.wait, name).total_seconds() if window.wait else None for window in windows]
        for name in ("p50", "p95", "p99", "max")
    }
    drawings = {
        "rates": _linear(queue, "Attempts a second, over time", rates),
        "waiting": _linear(queue, "Messages waiting, over time", {"waiting": waiting}),
        "waits": _logarithmic(queue, "Percentiles of waits over time", waits),
    }
    if queue.fairness is not None:
        indexes = {"Jain's index": [window.fairness for window in windows]}
        drawings["fairness"] = _drawing(
            queue, "Index of fairness over time", indexes, (0, 0.5, 1), "{:g}".format, float
        )
    return drawings


def _linear(queue: QueueFigures, title: str, series: Mapping[str, Sequence[float]]) -> Drawing:
    most = max(max(values) for values in series.values()) or 1.0
    power = 10.0 ** floor(log10(most / 4))
    step = next(number * power for number in (1, 2, 5, 10) if 4 * number * power >= most)
    ticks = [step * number for number in range(ceil(most / step) + 1)]
    return _drawing(queue, title, series, ticks, "{:,g}".format, float)


def _logarithmic(queue: QueueFigures, title: str, series: Mapping[str, Sequence[float | None]]) -> Drawing:
    """Return a drawing of durations in seconds, on a logarithmic axis."""
    ticks = list(_DURATIONS)
    found = [min(max(value, ticks[0]), _LONGEST) for values in series.values() for value in values if value is not None]
    first = min(bisect_right(ticks, min(found)) - 1, len(ticks) - 2)
    last = max(bisect_left(ticks, max(found)), first + 1)
    shown = ticks[first : last + 1]
    return _drawing(
        queue, title, series, shown, _DURATIONS.__getitem__, lambda value: log10(min(max(value, shown[0]), shown[-1]))
    )


def _drawing(  # noqa: PLR0917 - what a drawing is made of
    queue: QueueFigures,
    title: str,
    series: Mapping[str, Sequence[float | None]],
    ticks: Sequence[float],
    text: Callable[[float], str],
    scale: Callable[[float], float],
) -> Drawing:
    low, high, count = scale(ticks[0]), scale(ticks[-1]), len(queue.windows)
    begin, span = queue.windows[0].begin, count * queue.window

    def height(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (scale(value) - low) / (high - low), 1)

    def points(values: Sequence[float | None]) -> list[str]:
        placed = [
            None if value is None else f"{LEFT + (RIGHT - LEFT) * (number + 0.5) / count:.1f},{height(value)}"
            for number, value in enumerate(values)
        ]
        runs = [list(filter(None, run)) for _, run in groupby(placed, lambda one: one is None)]
        return [" ".join(run) for run in runs if run]

    return Drawing(
        title,
        [(label, points(values)) for label, values in series.items()],
        [(height(value), text(value)) for value in ticks],
        [
            (LEFT + (RIGHT - LEFT) * part / 4, formats.moment(begin + span * part / 4, begin if part else None))
            for part in range(5)
        ],
    )
