"""Labels: the names of tenants that a page shows instead of their channels, from a column of the history."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    LastLabels = dict[str, tuple[datetime, str]]


def check_label_column(column: str, names: Sequence[str]) -> None:
    """Refuse a column of labels that a history does not have.

    Raises:
        InvalidArgument: It does not have it.
    """
    if column not in names:
        raise InvalidArgument(f"the history has no column {column!r} of labels: it has {', '.join(names)}")


def last_labels(attempts: pa.Table, column: str) -> LastLabels:
    """The label of each channel's last attempt that has one, with the time at which that ended.

    Args:
        attempts: A history, with the columns channel and finished_at.
        column: Name of the column of labels; what is no text is made text.
    """
    table = pa.table({
        "channel": attempts["channel"].cast(pa.string()),
        "label": attempts[column].cast(pa.string()),
        "finished_at": attempts["finished_at"],
    }).filter(pc.is_valid(attempts[column]))  # fmt: skip
    rows = table.group_by(["channel", "label"]).aggregate([("finished_at", "max")]).to_pylist()
    return _last((row["channel"], (row["finished_at_max"], row["label"])) for row in rows)


def labels_of(parts: Iterable[LastLabels]) -> dict[str, str]:
    """The labels of channels, from the parts of a history; those that several channels have, with the channel behind.

    Channels without a label are left out.
    """
    last = _last(item for part in parts for item in part.items())
    labels = {channel: label for channel, (_, label) in sorted(last.items())}
    times = Counter(labels.values())
    return {channel: label if times[label] == 1 else f"{label} ({channel})" for channel, label in labels.items()}


def _last(found: Iterable[tuple[str, tuple[datetime, str]]]) -> LastLabels:
    last: LastLabels = {}
    for channel, label in found:
        last[channel] = max(last.get(channel, label), label)
    return last
