"""Labels of tenants from a column of the history."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting import read_archive, report
from sqlalchemy_fairqueue.reporting.history import RecordedHistory
from tests.reporting.tables import labelled, table
from tests.spark.report_history import GIANT, nasty

if TYPE_CHECKING:
    from pathlib import Path


def test_a_column_names_tenants() -> None:
    """Channels have the labels of the column, and those without one their names. The figures keep the channels."""
    history = RecordedHistory(labelled({GIANT: "Big & Co.", "small-3": "The small one"}))
    made = report(history, labels="customer", output=None, replayed=False)

    assert made.labels == {GIANT: "Big & Co.", "small-3": "The small one"}
    assert {one.channel for one in made.figures.channels} >= {GIANT, "small-3", "small-4"}


def test_channels_of_one_label_are_told_apart() -> None:
    """Two customers may have one name: then the page names their channels too."""
    history = RecordedHistory(labelled({"small-1": "Kim", "small-2": "Kim", "small-3": "Lee"}))
    made = report(history, labels="customer", output=None, replayed=False)
    assert made.labels == {"small-1": "Kim (small-1)", "small-2": "Kim (small-2)", "small-3": "Lee"}


def test_the_last_label_counts() -> None:
    """A tenant whose name changed has the name of the attempt that ended last, in whatever order the rows come."""
    attempts = nasty()
    rows, last = table(attempts), max(one.finished_at for one in attempts if one.channel == GIANT)
    names = pa.array(["new" if one.finished_at == last else "old" for one in attempts], pa.string())
    named = rows.append_column("customer", names)
    for shuffled in (named, named.take(list(reversed(range(len(named)))))):
        assert report(RecordedHistory(shuffled), labels="customer", output=None, replayed=False).labels[GIANT] == "new"


def test_an_archive_may_have_labels(tmp_path: "Path") -> None:
    """A further column of an archive is read where it is asked for; one that is not there is named."""
    parquet.write_table(labelled({GIANT: "Big & Co."}), tmp_path / "part.parquet")
    history = read_archive(tmp_path, label="customer")
    assert report(history, labels="customer", output=None, replayed=False).labels == {GIANT: "Big & Co."}
    with pytest.raises(InvalidArgument, match="the history has no column 'owner' of labels: it has id, queue"):
        read_archive(tmp_path, label="owner")
    with pytest.raises(InvalidArgument, match="the history has no column 'customer' of labels"):
        report(read_archive(tmp_path), labels="customer", output=None)
