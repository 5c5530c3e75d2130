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


def test_a_field_has_the_name_of_its_column() -> None:
    """A field of a message, a policy or a queue is a column of that name, but for those that the glossary names."""
    glossary = (_DOCS / "glossary.md").read_text("utf-8").partition("## Names")[2]
    renamed, others = set(), set()
    for names, columns in re.findall(r"^\| (.*) \| (.*) \|$", glossary, re.MULTILINE):
        renamed |= {*re.findall("`(.*?)`", names)}
        others |= {*re.findall("`(.*?)`", columns)}
    catalog = [name for name in expected_catalog(1) if name.startswith("column ")]
    assert others <= {name.rpartition(".")[2] for name in catalog}
    kept = {name.rpartition(".")[2] for name in catalog if re.match(r"column fq_(message|channel_state|queue)\.", name)}
    assert {*(field.name for field in fields(Enqueue)), *POLICY, *SETTINGS} - kept == renamed
