"""docs/roles.md says what roles.toml says."""

import re

import pytest

from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import KINDS, function_roles, role_functions
from tests.roles.page import PAGE, page

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the installed wheel is tested without the docs")


def test_the_table_is_fresh() -> None:
    """The table is what ``python -m tests.roles.page`` makes."""
    assert PAGE.read_text() == page()


def test_the_table_says_what_is_granted() -> None:
    """Read as a reader does, the table gives each kind its functions, and the others to nobody."""
    text = PAGE.read_text()
    rows = re.findall(r"^\| `(fq_\w+)` \|(.*)\|$", text, re.MULTILINE)
    told = {
        name: tuple(kind for kind, cell in zip(KINDS, cells.split("|"), strict=True) if cell.strip())
        for name, cells in rows
    }
    assert told == {name: kinds for name, kinds in function_roles(latest_version()).items() if kinds}
    for kind in KINDS:
        assert {name for name, kinds in told.items() if kind in kinds} == set(role_functions(latest_version(), kind))
        assert re.search(rf"^\| `{kind}` \|", text, re.MULTILINE)
