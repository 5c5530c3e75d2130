"""The fairness report: what a history tells about who was served, as figures and as a page.

Read ``definitions`` first: what each figure means, and where that comes from. ``attempts`` is what is read of the
history. ``sweeping`` goes through its events in time, ``fairness`` compares with the fair share, ``ranking`` finds
exact percentiles, ``rates`` and ``windows`` count; ``measuring`` puts it together. ``page`` and ``plots`` show it.
"""

from __future__ import annotations

from sqlalchemy_fairqueue.spark.reporting.figures import (
    ChannelFigures,
    Figures,
    Outcomes,
    Policy,
    QueueFigures,
    Ratios,
    Replay,
    Report,
    Spread,
    Starvation,
    WindowFigures,
)
from sqlalchemy_fairqueue.spark.reporting.making import report
from sqlalchemy_fairqueue.spark.reporting.measuring import measure

__all__ = [
    "ChannelFigures",
    "Figures",
    "Outcomes",
    "Policy",
    "QueueFigures",
    "Ratios",
    "Replay",
    "Report",
    "Spread",
    "Starvation",
    "WindowFigures",
    "measure",
    "report",
]
