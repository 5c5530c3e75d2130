"""Fairness reports: figures about the service of channels, and a page that shows and defines them.

Read ``definitions`` first: the meaning and the source of each figure. ``figures`` are the values, ``page`` and
``plots`` show them. Nothing here needs Spark.
"""

from __future__ import annotations

from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty
from sqlalchemy_fairqueue.reporting.figures import (
    ChannelFigures,
    Figures,
    Outcomes,
    Policy,
    QueueFigures,
    Ratios,
    Replay,
    ReplayedQueue,
    Report,
    Spread,
    Starvation,
    WindowFigures,
)

__all__ = [
    "ChannelFigures",
    "Figures",
    "HistoryEmpty",
    "Outcomes",
    "Policy",
    "QueueFigures",
    "Ratios",
    "Replay",
    "ReplayedQueue",
    "Report",
    "Spread",
    "Starvation",
    "WindowFigures",
]
