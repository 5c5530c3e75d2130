"""Fairness reports: figures about the service of channels, and a page that shows and defines them.

Read ``template/definitions.toml`` first: it has the meaning and the source of each figure. ``history`` reads a history,
``measurement`` calculates its figures, ``replaying`` tries other policies on it, and ``making`` assembles the report,
for Spark too. Nothing here needs Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, HistoryTooLong, HistoryUnreadable
from sqlalchemy_fairqueue.reporting.figures import (
    ChannelCosts,
    ChannelFigures,
    Culprit,
    Denial,
    Figures,
    Outcomes,
    PlanFigures,
    Policy,
    QueueCosts,
    QueueFigures,
    Ratios,
    Spread,
    Starvation,
    WindowFigures,
)
from sqlalchemy_fairqueue.reporting.reports import Advice, Objective, Replay, ReplayedQueue, Report

__all__ = [
    "Advice",
    "ChannelCosts",
    "ChannelFigures",
    "Culprit",
    "Denial",
    "Figures",
    "HistoryEmpty",
    "HistoryTooLong",
    "HistoryUnreadable",
    "Objective",
    "Outcomes",
    "PlanFigures",
    "Policy",
    "QueueCosts",
    "QueueFigures",
    "Ratios",
    "RecordedHistory",
    "Replay",
    "ReplayedQueue",
    "Report",
    "Scenario",
    "Spread",
    "Starvation",
    "WindowFigures",
    "read_archive",
    "read_history",
    "report",
]

# Functions and values with more dependencies than the figures, each imported on first use.
_LATER = {
    "RecordedHistory": "sqlalchemy_fairqueue.reporting.history",
    "read_archive": "sqlalchemy_fairqueue.reporting.history",
    "read_history": "sqlalchemy_fairqueue.reporting.history",
    "report": "sqlalchemy_fairqueue.reporting.making",
    "Scenario": "sqlalchemy_fairqueue.reporting.simulation.scenarios",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
