"""Histories of tests as Arrow tables."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from sqlalchemy_fairqueue.reporting import Figures, Policy
from sqlalchemy_fairqueue.reporting.columns import check_columns, queues_of
from sqlalchemy_fairqueue.reporting.measurement import figures_of, measure_queue
from sqlalchemy_fairqueue.times import duration
from tests.spark.report_history import POLICIES, Row, served_in_line_and_in_turn


def table(rows: Sequence[Row]) -> pa.Table:
    """The rows as a table."""
    return pa.table({name: [getattr(row, name) for row in rows] for name in Row.__dataclass_fields__})


def labelled(labels: Mapping[str, str]) -> pa.Table:
    """A history with a column ``customer`` of labels, null for other channels."""
    rows = table(served_in_line_and_in_turn())
    column = pa.array([labels.get(channel) for channel in rows["channel"].to_pylist()], pa.string())
    return rows.append_column("customer", column)


def known_policies() -> dict[tuple[str, str], Policy]:
    """The policies of the nasty history, as the report has them."""
    return {
        ("documents", name): Policy(concurrency, duration(interval) if interval else None, burst, weight)
        for name, (concurrency, interval, burst, weight) in POLICIES.items()
    }


def measure_table(
    history: pa.Table, *, policies: Mapping[tuple[str, str], Policy] | None = None, compile_: bool | None = None
) -> Figures:
    """All figures of a history."""
    check_columns(history.column_names)
    return figures_of([measure_queue(rows, policies or {}, None, compile_=compile_) for _, rows in queues_of(history)])
