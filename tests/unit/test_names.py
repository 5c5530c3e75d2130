"""One name in all layers: columns and values are read against the glossary."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.values.messages import Enqueue
from sqlalchemy_fairqueue.values.policies import POLICY
from sqlalchemy_fairqueue.values.settings import SETTINGS

_DOCS = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs"
pytestmark = pytest.mark.skipif(not _DOCS.is_dir(), reason="the installed wheel is tested without the docs")


def _renamed() -> dict[str, set[str]]:
    """The fields that the glossary names with other columns."""
    rows = re.findall(
        r"^\| (.*) \| (.*) \|$", (_DOCS / "glossary.md").read_text("utf-8").partition("## Names")[2], re.MULTILINE
    )
    return {
        name: set(re.findall("`(.*?)`", columns)) for names, columns in rows for name in re.findall("`(.*?)`", names)
    }


def test_a_field_has_the_name_of_its_column() -> None:
    """A field of a message, a policy or a queue is a column of that name, but for those that the glossary names."""
    columns = {name.rpartition(".")[2] for name in expected_catalog(1) if name.startswith("column ")}
    renamed = _renamed()
    assert {column for kept in renamed.values() for column in kept} <= columns
    names = {*(field.name for field in fields(Enqueue)), *POLICY, *SETTINGS}
    kept = {
        name.removeprefix("column ").partition(".")[2]
        for name in expected_catalog(1)
        if re.match(r"column fq_(message|channel_state|queue)\.", name)
    }
    assert {name for name in names if name not in kept} == renamed.keys()
