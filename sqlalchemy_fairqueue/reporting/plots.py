"""Draws a queue over time: rates, waiting messages, waits and fairness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.drawings import Axis, drawing, linear, logarithmic
from sqlalchemy_fairqueue.reporting import formats

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.drawings import Drawing
    from sqlalchemy_fairqueue.reporting.figures import QueueFigures


def over_time(queue: QueueFigures) -> dict[str, Drawing]:
    windows, seconds = queue.windows, queue.window.total_seconds()
    axis = Axis(windows[0].begin, windows[0].begin + len(windows) * queue.window, formats.moment)
    rates = {
        "started": [window.started / seconds for window in windows],
        "completed": [window.completed / seconds for window in windows],
    }
    waits = {
        name: [getattr(window.wait, name).total_seconds() if window.wait else None for window in windows]
        for name in ("p50", "p95", "p99", "max")
    }
    drawings = {
        "rates": linear("Attempts a second, over time", axis, rates),
        "waiting": linear("Messages waiting, over time", axis, {"waiting": [window.waiting for window in windows]}),
        "waits": logarithmic("Percentiles of waits over time", axis, waits),
    }
    if queue.fairness is not None:
        indexes = {"Jain's index": [window.fairness for window in windows]}
        drawings["fairness"] = drawing("Index of fairness over time", axis, indexes, (0, 0.5, 1), "{:g}".format, float)
    return drawings
