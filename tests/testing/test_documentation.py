"""The pages about testing and jobs: their files are applications whose tests pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sqlalchemy_fairqueue
from tests.fixtures.database import Database

_DOCS = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs"


@pytest.mark.parametrize(("page", "tests", "left"), [("testing", 6, 0), ("jobs", 1, 0)])
def test_the_files_of_the_page(page: str, tests: int, left: int, database: Database, tmp_path: Path) -> None:
    """Each block that begins with a file's name is written there, and pytest passes all of their tests."""
    for block in re.findall(r"```python\n(.*?)```", (_DOCS / f"{page}.md").read_text(), re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None, block
        (tmp_path / name[1]).write_text(block)
    passed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "-c", os.devnull, "."],
        cwd=tmp_path,
        env=os.environ | {"DATABASE_URL": database.url.render_as_string(hide_password=False)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert f"{tests} passed" in passed.stdout
    assert database.value("select count(*) from fq_message") == left
