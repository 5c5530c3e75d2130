"""docs/roles.md says what roles.toml says."""

import pytest

from tests.roles.page import PAGE, page

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the installed wheel is tested without the docs")


def test_the_table_is_fresh() -> None:
    """The table is what ``python -m tests.roles.page`` makes."""
    assert PAGE.read_text() == page()
