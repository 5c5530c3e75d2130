"""Tables of fields on the pages are those of the definitions: each test prints the table that the page should have."""

from collections.abc import Mapping
from pathlib import Path

import pytest

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.values.fields import Definition
from sqlalchemy_fairqueue.values.policies import POLICY
from sqlalchemy_fairqueue.values.settings import SETTINGS, PolicyOf
from tests.policies import SETTING_WORDS, WORDS

_DOCS = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs"
pytestmark = pytest.mark.skipif(not _DOCS.is_dir(), reason="the installed wheel is tested without the docs")


def _table(heading: str, definitions: Mapping[str, Definition], words: Mapping[str, str]) -> str:
    rows = [f"| {heading} | such as | meaning | a change holds |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | `{words[name]}` | {definition.help}"
        + (f" None: {definition.none}." if definition.none else "")
        + f" | {definition.holds} |"
        for name, definition in definitions.items()
        if not isinstance(definition, PolicyOf)
    ]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("heading", "definitions", "words"), [("field", POLICY, WORDS), ("setting", SETTINGS, SETTING_WORDS)]
)
def test_the_guide_has_every_field(
    heading: str, definitions: Mapping[str, Definition], words: Mapping[str, str]
) -> None:
    """The guide of limits lists the fields of a policy, and the settings of a queue, as they are defined."""
    page = (_DOCS / "howto" / "limits.md").read_text("utf-8")
    assert _table(heading, definitions, words) in page, _table(heading, definitions, words)
