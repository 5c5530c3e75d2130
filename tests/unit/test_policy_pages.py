"""Pages that list the fields of a policy: each has every field."""

import re
from pathlib import Path

import pytest

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.values import policy_fields

_DOCS = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs"


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")


def _spark_option(field: str) -> str:
    first, *others = ("drop_when_full" if field == "on_full" else field).split("_")
    return first + "".join(map(str.title, others))


@pytest.mark.skipif(not _DOCS.is_dir(), reason="the installed wheel is tested without the docs")
@pytest.mark.parametrize("field", policy_fields())
def test_the_pages_name_every_field(field: str) -> None:
    """The command line's page has its option, the plans' page says when it holds, and Spark's page has its option."""
    names = {"cli.md": _option(field), "howto/plans.md": field, "spark.md": _spark_option(field)}
    missing = [(page, name) for page, name in names.items() if f"`{name}" not in (_DOCS / page).read_text()]
    assert not missing


@pytest.mark.skipif(not _DOCS.is_dir(), reason="the installed wheel is tested without the docs")
@pytest.mark.parametrize("field", policy_fields())
def test_a_guide_says_what_the_field_does(field: str) -> None:
    """A how-to guide names the field; that of the plans, which only says from when on it holds, does not count."""
    guides = [page for page in (_DOCS / "howto").glob("*.md") if page.name != "plans.md"]
    written = re.compile(rf"`{field}`|\b{field}=")
    assert any(written.search(page.read_text()) for page in guides)
