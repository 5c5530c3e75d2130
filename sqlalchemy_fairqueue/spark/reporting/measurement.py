"""Measurement of a history: the kernel of ``sqlalchemy_fairqueue.reporting``, a queue in each Python worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.reporting.columns import COLUMNS as _MEASURED
from sqlalchemy_fairqueue.reporting.columns import check_columns
from sqlalchemy_fairqueue.reporting.measurement import figures_of, measure_queue
from sqlalchemy_fairqueue.reporting.replaying import figures_policy
from sqlalchemy_fairqueue.simulation.trace import COST
from sqlalchemy_fairqueue.spark.reporting.groups import results_of
from sqlalchemy_fairqueue.spark.reporting.policies import KnownPolicies, known_policies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.reporting.figures import Figures, Policy
    from sqlalchemy_fairqueue.reporting.measurement import MeasuredQueue


def measure(history: DataFrame, *, policies: DataFrame | None = None, window: timedelta | None = None) -> Figures:
    """Take all figures of a history, by one shuffle of its rows to a Python worker a queue.

    The attempts of a queue must fit in the memory of a Python worker, at about 200 bytes each.

    Args:
        history: As for :func:`~sqlalchemy_fairqueue.spark.report`. It is read once.
        policies: As for the report; read once.
        window: Width of the windows over time. None: one that makes at most 240 of them.

    Raises:
        HistoryEmpty: The history has no attempt.
        InvalidArgument: A column is missing, or the history is of several databases.
    """
    check_columns(history.columns)
    known = KnownPolicies({}, {}) if policies is None else known_policies(policies)
    read = [*_MEASURED, *([COST] if COST in history.columns else [])]
    shown = {key: figures_policy(policy, known.plans.get(key)) for key, policy in known.policies.items()}
    measure_rows = _measurer(shown, window)
    return figures_of(results_of(history.select(*read).groupBy("queue"), measure_rows))


def _measurer(
    policies: Mapping[tuple[str, str], Policy], window: timedelta | None
) -> Callable[[pa.Table], MeasuredQueue]:
    def measure_rows(rows: pa.Table) -> MeasuredQueue:
        return measure_queue(rows, policies, window)

    return measure_rows
