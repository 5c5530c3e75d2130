"""Labels: the names of tenants that a page shows instead of their channels, from a column of the history."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


def check_label_column(column: str, names: Sequence[str]) -> None:
    """Refuse a column of labels that a history does not have.

    Raises:
        InvalidArgument: It does not have it.
    """
    if column not in names:
        raise InvalidArgument(f"the history has no column {column!r} of labels: it has {', '.join(names)}")


def labels_in(attempts: pa.Table, column: str) -> dict[str, str]:
    """The labels of channels that a column holds: of each channel that of its last attempt with one.

    Channels without a label are left out.

    Args:
        attempts: A history, with the columns channel and finished_at.
        column: Name of the column of labels; what is no text is made text.
    """
    table = pa.table({
        "channel": attempts["channel"].cast(pa.string()),
        "label": attempts[column].cast(pa.string()),
        "finished_at": attempts["finished_at"],
    }).filter(pc.is_valid(attempts[column]))  # fmt: skip
    last: dict[str, tuple[datetime, str]] = {}
    for row in table.group_by(["channel", "label"]).aggregate([("finished_at", "max")]).to_pylist():
        found = (row["finished_at_max"], row["label"])
        last[row["channel"]] = max(last.get(row["channel"], found), found)
    return {channel: label for channel, (_, label) in last.items()}


def told_apart(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels with their channels behind those that several channels have."""
    times = Counter(labels.values())
    return {
        channel: label if times[label] == 1 else f"{label} ({channel})" for channel, label in sorted(labels.items())
    }
