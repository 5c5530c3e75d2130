"""Calls that the type checkers of applications accept and refuse."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[1]
_NAMES = ("jobs", "verbs")


def _expected(file: Path) -> set[int]:
    """The lines that are marked as wrong."""
    return {number for number, line in enumerate(file.read_text().splitlines(), 1) if "# WRONG: " in line}


def _run(*command: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=_ROOT, capture_output=True, text=True, timeout=110, check=False
    ).stdout


def _mypy(cache: Path, *files: Path) -> dict[tuple[str, int], str]:
    """The errors of mypy in strict mode, by file and line."""
    names = {file.name for file in files}
    said = _run("mypy", "--config-file=", "--strict", f"--cache-dir={cache}", "--no-error-summary", *map(str, files))
    errors = re.findall(r"^(?:\S*/)?(\w+\.py):(\d+): error: (.*)$", said, re.MULTILINE)
    assert {name for name, *_ in errors} <= names, said
    return {(name, int(line)): words for name, line, words in errors}


def _pyright(file: Path) -> dict[int, str]:
    """The errors of pyright, by line. The file asks for strict mode."""
    said = _run("pyright", "--outputjson", "--pythonpath", sys.executable, str(file))
    found = json.loads(said)["generalDiagnostics"]
    assert {Path(one["file"]) for one in found} <= {file}, said
    return {one["range"]["start"]["line"] + 1: one["message"] for one in found if one["severity"] == "error"}


def test_mypy(tmp_path: Path) -> None:
    """In strict mode it refuses what is marked as wrong, and nothing else."""
    files = [_FOLDER / f"{name}.py" for name in _NAMES]
    found = _mypy(tmp_path, *files)
    assert found.keys() == {(file.name, line) for file in files for line in _expected(file)}, found


@pytest.mark.whole
@pytest.mark.parametrize("name", _NAMES)
def test_pyright(name: str) -> None:
    """In strict mode it refuses what is marked as wrong, and nothing else."""
    pytest.importorskip("pyright", reason="not installed here")
    file = _FOLDER / f"{name}.py"
    found = _pyright(file)
    assert found.keys() == _expected(file), found


@pytest.mark.whole
def test_public_types_are_known(tmp_path: Path) -> None:
    """Pyright knows the types of 98 of 100 names that an application can import."""
    pytest.importorskip("pyright", reason="not installed here")
    pytest.importorskip("pyspark", reason="the session `types` has PySpark, whose types the data pipeline shows")
    # It asks the first Python of the path, and takes a package in the current folder for an unpacked one without types.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(
        [sys.executable, "-m", "pyright", "--verifytypes", "sqlalchemy_fairqueue", "--ignoreexternal", "--outputjson"],
        cwd=tmp_path, env=os.environ | {"PATH": path, "PYTHONPATH": str(_ROOT)}, capture_output=True, text=True,
        timeout=110, check=False,
    ).stdout  # fmt: skip
    found = json.loads(said)["typeCompleteness"]
    unknown = [one["name"] for one in found["symbols"] if one["isExported"] and not one["isTypeKnown"]]
    assert found["exportedSymbolCounts"]["withKnownType"] > 1000, found
    assert found["completenessScore"] >= 0.98, unknown
