"""Picture of who was served when: the fair queue above the FIFO, time from left to right, one row a customer."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.demo.scenario import BOB
from sqlalchemy_fairqueue.demo.summary import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes

    from sqlalchemy_fairqueue.demo.outcome import Outcome
    from sqlalchemy_fairqueue.demo.scenario import Scenario
    from sqlalchemy_fairqueue.demo.takeover import Takeover

_BOB, _SERVED, _WAITING, _INK, _PALE = "#8195a8", "#0f766e", "#f4a582", "#1f2933", "#d9dee3"
_ACCIDENT = "#b42318"


def draw(scenario: Scenario, outcomes: list[Outcome], path: Path) -> None:
    """Write the picture to *path*; its ending says in which format."""
    with _no_traces():
        # Only here, since matplotlib writes into its cache folder when it is imported.
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        layout = ConstrainedLayoutEngine(hspace=0.06)
        figure = Figure(figsize=(11, 7.6), dpi=150, layout=layout, facecolor="white")
        panels = figure.subplots(len(outcomes), 1, sharex=True)
        title = f"Ten small customers behind Bob's {outcomes[0].of(BOB).files:,} files"
        figure.suptitle(title, fontsize=17, fontweight="bold", color=_INK, x=0.008, ha="left")
        figure.legend(
            handles=[
                Patch(color=_WAITING, label="a file waits"),
                Line2D([], [], color=_SERVED, ls="", marker="|", markersize=11, mew=2.2, label="a file is parsed"),
                Line2D([], [], ls="", label="0.1 s: median wait"),
            ],
            loc="upper right", ncols=3, frameon=False, handletextpad=0.4, labelcolor=_INK,
        )  # fmt: skip
        for panel, outcome in zip(panels, outcomes, strict=True):
            _panel(panel, [visit.customer for visit in scenario.visits], outcome)
        panels[-1].set_xlabel("seconds since Bob's upload", color=_INK)
        panels[-1].set_xlim(0, max(outcome.seconds for outcome in outcomes) * 1.06)
        picture = io.BytesIO()
        figure.savefig(picture, format=path.suffix[1:])
    path.write_bytes(picture.getvalue())


def _panel(panel: Axes, customers: list[str], outcome: Outcome) -> None:
    waits = outcome.of(*customers[1:])
    panel.set_title(
        f"{outcome.service}: they wait {seconds(waits.median)} (median)", loc="left", fontsize=13, color=_INK
    )
    for row, customer in enumerate(customers):
        served = [one for one in outcome.served if one.customer == customer]
        colour = _BOB if customer == BOB else _SERVED
        if customer != BOB:
            came, last = min(one.uploaded for one in served), max(one.parsed for one in served)
            panel.barh(row, last - came, left=came, height=0.5, color=_WAITING, linewidth=0, zorder=1)
            panel.annotate(
                seconds(outcome.of(customer).median), (last, row), (7, 0), textcoords="offset points",
                va="center", fontsize=8, color=_INK,
            )  # fmt: skip
        panel.vlines(
            [one.parsed for one in served], row - 0.34, row + 0.34, color=colour, lw=0.5 if customer == BOB else 1.8
        )
    if outcome.takeover and outcome.killed_at is not None:
        _accident(panel, outcome.killed_at, outcome.takeover)
    panel.set_yticks(range(len(customers)), customers, color=_INK)
    panel.invert_yaxis()
    panel.grid(axis="x", color=_PALE, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, labelbottom=True)
    panel.spines[:].set_visible(False)


def _accident(panel: Axes, killed_at: float, takeover: Takeover) -> None:
    """The time from the kill until others have parsed the first file that the dead worker held."""
    panel.axvspan(killed_at, killed_at + takeover.results[0], color=_ACCIDENT, alpha=0.16, linewidth=0, zorder=0)
    panel.set_title(
        f"red: from the kill of {takeover.accident.worker} with {takeover.files} in its hands "
        f"until others had parsed the first: {seconds(takeover.results[0])}",
        loc="right", fontsize=9, color=_ACCIDENT,
    )  # fmt: skip


@contextlib.contextmanager
def _no_traces() -> Iterator[None]:
    """Let matplotlib and fontconfig keep their caches in a folder that is removed, unless told of another."""
    with tempfile.TemporaryDirectory(prefix="fairqueue-") as folder:
        os.environ.setdefault("MPLCONFIGDIR", folder)
        os.environ.setdefault("XDG_CACHE_HOME", folder)
        yield
