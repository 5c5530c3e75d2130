"""The recipes of the page for clusters, on a standalone master and two workers."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.spark.conftest import Target

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

_ROWS = 2_000
_CHECKOUT = Path(__file__).parents[2]


def _answer(target: Target, folder: Path, *archive: str) -> list[dict[str, str]]:
    """The executors of a run in which both loads were enqueued once and read back."""
    program = [sys.executable, "-m", "tests.spark.standalone", target.queue, str(_ROWS), str(folder), *archive]
    environment = {**os.environ, "QUEUE_DSN": target.database.conninfo}
    said = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    found = json.loads(said.splitlines()[-1])
    assert (found["created"], found["read"]) == (_ROWS, 2 * _ROWS)
    executors: list[dict[str, str]] = found["executors"]
    # One on each worker.
    assert {Path(one["folder"]).relative_to(folder).parts[0] for one in executors} == {"work-1", "work-2"}
    return executors


def test_the_package_is_installed_on_the_executors(target: Target, tmp_path: Path) -> None:
    """They have the Python that PYSPARK_PYTHON names."""
    assert {one["python"] for one in _answer(target, tmp_path)} == {sys.executable}


def test_an_environment_is_shipped_to_the_executors(target: Target, tmp_path: Path) -> None:
    """They unpack it into their folders, and import the package from there."""
    folder = tmp_path / "executors"
    venv.create(folder, with_pip=True)
    wanted = ("venv-pack", str(_CHECKOUT), "psycopg[binary]", "pyarrow", "numpy")
    subprocess.run([folder / "bin/pip", "install", "--quiet", *wanted], check=True)
    packed = tmp_path / "executors.tar.gz"
    subprocess.run([folder / "bin/venv-pack", "--quiet", "--prefix", folder, "--output", packed], check=True)
    for one in _answer(target, tmp_path, str(packed)):
        shipped = Path(one["folder"], "environment")
        assert Path(one["package"]).resolve().is_relative_to(shipped.resolve())
