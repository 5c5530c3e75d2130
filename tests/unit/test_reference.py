"""docs/sql.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sql_reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


@pytest.mark.skipif(not PAGE.parent.is_dir(), reason="the installed wheel is tested without the docs")
def test_the_sql_page_is_what_the_headers_say() -> None:
    """The SQL reference page is the one that the headers of the SQL files make."""
    assert PAGE.read_text() == reference(), "run python -m tests.unit.sql_reference > docs/sql.md"
