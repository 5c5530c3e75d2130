"""The page's example that keeps the history in a table of Delta Lake."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.pages import DOCS, blocks
from tests.spark.report_history import frame, nasty

_PAGE = DOCS / "spark.md"

pytestmark = pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")


def test_the_history_in_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that comes again adds nothing, a later column is added, and compact leaves one file."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    (example,) = (one.text for one in blocks(_PAGE) if "write_deltalake" in one.text)
    folder = f"{tmp_path}/attempts"
    names: dict[str, Any] = {}
    exec(compile(example.replace("lake/attempts", folder), str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    rows = frame(spark, nasty(attempts=20)).coalesce(1)
    count = rows.count()
    for batch, some in ((0, rows.drop("cost")), (0, rows), (1, rows), (1, rows)):
        names["add_to_table"](some, batch)
    assert len(deltalake.DeltaTable(folder).file_uris()) == 2
    deltalake.DeltaTable(folder).optimize.compact()
    found = deltalake.DeltaTable(folder)
    assert len(found.file_uris()) == 1
    costs = found.to_pyarrow_table(columns=["cost"])["cost"]
    assert (len(costs), costs.null_count) == (2 * count, count)
