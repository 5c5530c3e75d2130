"""Fairness report: the figures of a history, and their page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.reporting.page import page_of
from sqlalchemy_fairqueue.reporting.reports import Report
from sqlalchemy_fairqueue.spark.reporting.measurement import measure

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.reporting.replays import Replay


def report(
    history: DataFrame,
    *,
    policies: DataFrame | None = None,
    output: str | os.PathLike[str] | None = "fairness.html",
    title: str = "Fairness report",
    replays: Sequence[Replay] | None = None,
    window: timedelta | None = None,
) -> Report:
    """Make a fairness report: figures, and a page that shows and defines them.

    The history is read once. Archive a live one before, so that the report can be made again. The attempts of a queue
    must fit in the memory of a Python worker, at about 200 bytes each.

    Args:
        history: What ``spark.read.format("fairqueue")`` or an archive gives, whole or a part: filter it by queue or
            time as you like. Attempts that a filter removes do not count.
        policies: What ``table=channels`` reads. None: no channel has limits, and all weigh the same.
        output: The file of the page, which is replaced. None: no page.
        title: Its title.
        replays: Replays, for comparison with the history.
        window: Width of the windows over time. None: one that makes at most 240 of them.

    Raises:
        HistoryEmpty: The history has no attempt.
        InvalidArgument: A column is missing, or the history is of several databases.
    """
    made = Report(
        title=title,
        figures=measure(history, policies=policies, window=window),
        replays=tuple(replays or ()),
        path=None if output is None else Path(output),
        made_at=datetime.now(UTC),
    )
    if made.path is not None:
        made.path.write_text(page_of(made), encoding="utf-8")
    return made
