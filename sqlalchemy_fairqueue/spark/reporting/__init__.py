"""Fairness report of a history by Spark: figures about the service of channels.

``attempts`` reads the history. ``sweep`` goes through its events in time, ``fairness`` compares with the fair share,
``percentiles`` are exact, ``rates`` and ``windows`` count; ``measurement`` puts them together. The figures and their
page are those of ``sqlalchemy_fairqueue.reporting``.
"""

from __future__ import annotations

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
from sqlalchemy_fairqueue.spark.reporting.fairness_report import report
from sqlalchemy_fairqueue.spark.reporting.measurement import measure

__all__ = [
    "ChannelFigures",
    "Figures",
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
    "measure",
    "report",
]
