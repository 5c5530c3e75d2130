"""Drawings of values over time, as SVG: the report and the dashboard show them in their own colours.

A drawing fills the width of its page: heights are in pixels, and positions on the time axis in percent of the width.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    Series = Mapping[str, Sequence[float | None]]

TOP, BOTTOM = 16, 128
"""The heights of the greatest and the least tick, in pixels below the top of the drawing."""

_DURATIONS = {
    1e-6: "1 \u00b5s", 1e-4: "100 \u00b5s", 1e-3: "1 ms", 0.01: "10 ms", 0.1: "100 ms", 1.0: "1 s", 10.0: "10 s",
    60.0: "1 min", 600.0: "10 min", 3_600.0: "1 h", 36_000.0: "10 h", 86_400.0: "1 d", 864_000.0: "10 d",
    8_640_000.0: "100 d",
}  # fmt: skip
_LONGEST = max(_DURATIONS)
_UNITS = (86_400.0, " d"), (3_600.0, " h"), (60.0, " min"), (0.0, " s")


@dataclass(frozen=True, slots=True)
class Axis:
    """The time axis. ``moment(instant, begin)`` labels an instant, and may omit the day if *begin* has the same day."""

    begin: datetime
    end: datetime
    moment: Callable[[datetime, datetime | None], str]

    def times(self) -> list[tuple[int, str]]:
        span = self.end - self.begin
        return [
            (25 * part, self.moment(self.begin + span * part / 4, self.begin if part else None)) for part in range(5)
        ]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing with a title for screen readers.

    Attributes:
        lines: Each line's label and its runs. A run is a text of points, ``x,y x,y``; a missing value ends it.
        ticks: Heights in pixels, with their labels.
        times: Places on the time axis, in percent of the width, with their labels.
    """

    title: str
    lines: list[tuple[str, list[str]]]
    ticks: list[tuple[float, str]]
    times: list[tuple[int, str]]

    @property
    def svg(self) -> str:
        """The drawing as markup. Titles and labels are not escaped here: escape what comes from users."""
        rules = [f'<line x2="100%" y1="{height}" y2="{height}"/>' for height, _ in self.ticks]
        ticks = [f'<text y="{height - 4}">{text}</text>' for height, text in self.ticks]
        anchors = {0: "start", 100: "end"}
        times = [
            f'<text x="{place}%" y="{BOTTOM + 16}" text-anchor="{anchors.get(place, "middle")}">{text}</text>'
            for place, text in self.times
        ]
        lines = [
            f'<polyline class="series-{number}" points="{points}"/>'
            # A line of no length is drawn as a dot.
            if " " in points
            else f'<polyline class="series-{number} dot" points="{points} {points}"/>'
            for number, (_, runs) in enumerate(self.lines, 1)
            for points in runs
        ]
        return (
            f'<svg class="drawing" width="100%" height="{BOTTOM + 22}" role="img" aria-label="{self.title}">'
            f"{''.join(rules)}"
            f'<svg width="100%" height="{BOTTOM}" viewBox="0 0 100 {BOTTOM}" preserveAspectRatio="none"'
            ' overflow="visible">'
            f"{''.join(lines)}</svg>{''.join(ticks + times)}</svg>"
        )


def linear(title: str, axis: Axis, series: Series, *, durations: bool = False) -> Drawing:
    """Draw numbers, or durations in seconds, over time. The scale begins at zero, and whole numbers get whole ticks."""
    most = max((value for values in series.values() for value in values if value is not None), default=0) or 1
    size, unit = next(one for one in _UNITS if most >= one[0]) if durations else (1.0, "")
    size = size or 1.0
    power = 10.0 ** floor(log10(most / size / 4))
    step = next(number * power for number in (1, 2, 5, 10) if 4 * number * power >= most / size) * size
    step = max(step, 1.0) if isinstance(most, int) else step
    ticks = [step * number for number in range(ceil(most / step) + 1)]
    return drawing(title, axis, series, ticks, lambda value: f"{value / size:,.10g}{unit}", float)


def logarithmic(title: str, axis: Axis, series: Series) -> Drawing:
    """Draw durations, in seconds, over time, on a logarithmic scale."""
    ticks = list(_DURATIONS)
    found = [min(max(value, ticks[0]), _LONGEST) for values in series.values() for value in values if value is not None]
    first = min(bisect_right(ticks, min(found)) - 1, len(ticks) - 2)
    last = max(bisect_left(ticks, max(found)), first + 1)
    shown = ticks[first : last + 1]
    return drawing(
        title, axis, series, shown, _DURATIONS.__getitem__, lambda value: log10(min(max(value, shown[0]), shown[-1]))
    )


def drawing(  # noqa: PLR0917 - what a drawing is made of
    title: str,
    axis: Axis,
    series: Series,
    ticks: Sequence[float],
    text: Callable[[float], str],
    scale: Callable[[float], float],
) -> Drawing:
    low, high = scale(ticks[0]), scale(ticks[-1])

    def height(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (scale(value) - low) / (high - low), 1)

    def points(values: Sequence[float | None]) -> list[str]:
        placed = [
            None if value is None else f"{100 * (number + 0.5) / len(values):.2f},{height(value)}"
            for number, value in enumerate(values)
        ]
        runs = [list(filter(None, run)) for _, run in groupby(placed, lambda one: one is None)]
        return [" ".join(run) for run in runs if run]

    return Drawing(
        title,
        [(label, points(values)) for label, values in series.items()],
        [(height(value), text(value)) for value in ticks],
        axis.times(),
    )
