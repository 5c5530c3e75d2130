"""What the pictures of the site look like."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

STATIC = Path(__file__).parents[1] / "_static"
WHALE, SERVED, WAITING, INK, PALE = "#8195a8", "#0f766e", "#f4a582", "#1f2933", "#d9dee3"


def plain(panel: Axes) -> None:
    """Take away what is no data: spines and ticks."""
    panel.grid(axis="x", color=PALE, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


@contextlib.contextmanager
def picture(name: str, rows: int, height: float, label: str) -> Iterator[list[Axes]]:
    """Panels above each other, written as SVG with text as text."""
    import matplotlib as mpl  # noqa: PLC0415 - it writes caches when it is imported
    from matplotlib.figure import Figure  # noqa: PLC0415

    settings = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif", "font.size": 10}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(9, height), layout="constrained", facecolor="white")
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        yield list(panels)
        panels[-1].set_xlabel(label, color=INK)
        figure.savefig(STATIC / name, format="svg", metadata={"Date": None})
