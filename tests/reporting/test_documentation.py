"""The page about the report is true."""

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

import sqlalchemy_fairqueue
from tests.fixtures.database import Database
from tests.spark.recorded import add

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "report.md"

pytestmark = pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")


def test_the_example_runs(database: Database, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example makes a page of the history of a queue."""
    monkeypatch.chdir(tmp_path)
    add(database, 30)
    names: dict[str, Any] = {"engine": engine}
    (example,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    exec(compile(example, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
    made = names["made"]
    assert [one.name for one in made.replays] == ["as recorded, replayed", "one line", "half the workers"]
    assert (tmp_path / "fairness.html").is_file()
