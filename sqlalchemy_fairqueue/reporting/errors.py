"""Errors of reports."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors import FairQueueError


class HistoryEmpty(FairQueueError):
    """There is no attempt to report on."""
