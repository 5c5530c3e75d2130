"""Fairness report of a history by Spark: figures about the service of channels.

The figures are those of ``sqlalchemy_fairqueue.reporting``, by the same kernel: Spark brings the rows of each queue to
a Python worker (``groups``), which measures and replays them (``queue_reports``).
"""

from __future__ import annotations

from sqlalchemy_fairqueue.reporting.figures import (
    ChannelFigures,
    Figures,
    Outcomes,
    Policy,
    QueueFigures,
    Ratios,
    Spread,
    Starvation,
    WindowFigures,
)
from sqlalchemy_fairqueue.reporting.replays import Replay, ReplayedQueue
from sqlalchemy_fairqueue.reporting.reports import Report
from sqlalchemy_fairqueue.spark.reporting.fairness_report import measure, report

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
