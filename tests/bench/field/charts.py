"""Bars of a figure of all contestants, as SVG."""

from __future__ import annotations

from io import StringIO
from statistics import median
from typing import Final

CHARTS: Final = (
    ("whale", "wait p99, ms", "A minnow's wait beside a whale, 99th percentile, ms", True),
    ("whale", "p99 to alone", "The same against its wait alone", True),
    ("newcomers", "wait p99, ms", "The wait of tenants that nobody knew, 99th percentile, ms", True),
    ("newcomers", "whale to alone", "When a whale is done, against without these", False),
    ("zipf", "jain, least", "Jain's index to the max-min fair share, least of the seconds", False),
    ("zipf", "longest starvation, ms", "Longest starvation of a tenant, ms", True),
    ("costs", "costly to cheap", "Workers' time of tenants with costs of 10 to those with costs of 1", False),
    ("costs", "jain by cost, least", "Jain's index by cost, least of the seconds", False),
    ("drain", "messages/s", "Throughput of a drain, messages a second", False),
    ("one_by_one", "messages/s", "The same one by one", False),
    ("steady", "messages/s", "In and out at once, messages a second", False),
    ("enqueue", "one by one, messages/s", "Enqueue in a transaction each, messages a second", False),
    ("business_5ms", "to without", "Transactions of 5 ms with an enqueue, against without", False),
    ("business_2s", "to without", "Transactions of 2 s with an enqueue, against without", False),
    ("snapshot", "last to first", "Throughput under an open snapshot, last fifth to first", False),
    ("drain", "log bytes/message", "Bytes of log a message", False),
)
"""Workload, figure, title, and whether the axis is logarithmic."""


def told(values: list[float]) -> str:
    """The median, and the least and the greatest where they differ."""
    if not values:
        return ""
    middle, least, most = (number(value) for value in (median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def number(value: float) -> str:
    """With three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def chart(bars: dict[str, list[float]], *, logarithmic: bool) -> str:
    """A picture of a bar for each name, with its spread; what follows ``<svg``."""
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415 - only where a page is made

    picture = Picture(figsize=(7, 0.4 + 0.28 * len(bars)), layout="constrained")
    axes = picture.subplots()
    names = list(bars)[::-1]
    middles = [median(bars[name]) for name in names]
    spread = [
        [middle - min(bars[name]) for name, middle in zip(names, middles, strict=True)],
        [max(bars[name]) - middle for name, middle in zip(names, middles, strict=True)],
    ]
    colours = ["#c2410c" if name == "fairqueue" else "#94a3b8" for name in names]
    axes.barh(names, middles, xerr=spread, color=colours, height=0.7, ecolor="#334155")
    for place, middle in enumerate(middles):
        # Beside the end of the spread, not upon it.
        axes.text(middle + spread[1][place], place, f" {number(middle)}", va="center", fontsize=8)
    axes.margins(x=0.15)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(left=min(1.0, *middles))
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = StringIO()
    picture.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue().partition("<svg")[2]
