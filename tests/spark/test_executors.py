"""Objects and functions for executors: what they unpickle to, and what an executor without the package says."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from sqlalchemy_fairqueue.spark.executors import shipped
from sqlalchemy_fairqueue.spark.options import ReadOptions
from sqlalchemy_fairqueue.spark.reading.readers import BatchReader

# An executor that has PySpark, and neither this package nor what it needs.
_EXECUTOR = """
import pathlib, pickle, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.meta_path.insert(0, Absent())
try:
    found = pickle.loads(pathlib.Path(sys.argv[2]).read_bytes())
    found([1])
except ModuleNotFoundError as error:
    print(error)
"""


def _counted(rows: list[int]) -> int:
    return len(rows)


def _sent(value: object) -> bytes:
    packed: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return packed


def _reader() -> BatchReader:
    return BatchReader(ReadOptions(dsn_env="QUEUE_DSN", queue="documents"), StructType())  # type: ignore[arg-type]


def test_they_are_what_they_were() -> None:
    """A reader and a function come back as they were sent."""
    reader = pickle.loads(_sent(_reader()))  # noqa: S301 - our own
    assert type(reader) is BatchReader
    assert vars(reader) == vars(_reader())
    assert pickle.loads(_sent(shipped(_counted)))([5, 6]) == 2  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("sent", "missing"),
    [(_reader(), "sqlalchemy_fairqueue"), (_reader(), "psycopg"), (shipped(_counted), "tests")],
    ids=["reader", "its driver", "function"],
)
def test_an_executor_without_the_package_says_what_to_install(sent: Any, missing: str, tmp_path: Path) -> None:
    """It names the missing module, its own Python, and the call of pip."""
    file = tmp_path / "sent"
    file.write_bytes(_sent(sent))
    command = [sys.executable, "-c", _EXECUTOR, missing, str(file)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"has no module {missing!r} in {sys.executable}" in said
    assert "pip install 'sqlalchemy-fairqueue[report]==" in said
    assert "spark.archives" in said
