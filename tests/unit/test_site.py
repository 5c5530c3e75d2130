"""The site has every public name. Sphinx itself warns of pages that no navigation has, and of names that are gone."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from sqlalchemy_fairqueue import Queue

_DOCS = Path(__file__).parents[2] / "docs"
_SHOWN = re.compile(r"^\.\. (?:auto(?!method|property)|py:)\w+:: ([\w.]+)$", re.MULTILINE)
_PACKAGE = "sqlalchemy_fairqueue"
_PARTS = ("dashboard", "embedded", "metrics", "models", "otel", "reporting", "testing", "testing.factories")
_PUBLIC = [_PACKAGE, *(f"{_PACKAGE}.{part}" for part in _PARTS), "alembic_ext"]

pytestmark = pytest.mark.skipif(not _DOCS.is_dir(), reason="the installed wheel is tested without the docs")


def test_every_public_name_is_on_a_page() -> None:
    """The reference has each name that a package exports: under this name, or as one of the library itself."""
    shown = {name for page in (_DOCS / "reference").glob("*.md") for name in _SHOWN.findall(page.read_text())}
    library = import_module(_PACKAGE)
    missing = [
        f"{module}.{name}"
        for module in _PUBLIC
        for own in (import_module(module),)
        for name in own.__all__
        if f"{module}.{name}" not in shown
        and not (getattr(own, name) is getattr(library, name, None) and f"{_PACKAGE}.{name}" in shown)
    ]
    assert missing == [], "add each to a page in docs/reference"


def _members() -> Iterator[tuple[str, str, object]]:
    """The public members of all public names that this package defines, with the name and the docstring of each."""
    for module in _PUBLIC:
        own = import_module(module)
        for name in own.__all__:
            for attribute, value in inspect.getmembers_static(getattr(own, name)):
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if inspect.isfunction(function) and function.__module__.startswith(_PACKAGE):
                    doc = inspect.getdoc(getattr(getattr(own, name), attribute)) or ""
                    yield f"{module}.{name}.{attribute}", doc, value


def test_public_members_have_a_docstring() -> None:
    """An override may leave it to the method that it overrides, a special method has none."""
    assert [name for name, doc, _ in _members() if not doc and not name.rpartition(".")[2].startswith("_")] == []


def test_the_site_shows_whole_sentences_of_properties() -> None:
    """Sphinx takes what stands before a colon in the first line of a property's docstring for its type."""
    first = {name: doc.partition("\n")[0] for name, doc, value in _members() if isinstance(value, property)}
    named = re.compile(r":\w+:`[^`]*`|`[^`]*`")
    assert {name: line for name, line in first.items() if re.search(r"[^:]:\s", named.sub("", line))} == {}


def test_every_method_of_queue_is_on_its_page() -> None:
    """The page sorts them by task, so that each must be named."""
    page = (_DOCS / "reference" / "queue.md").read_text()
    named = set(re.findall(r"auto(?:method|property):: sqlalchemy_fairqueue\.Queue\.(\w+)", page))
    assert {name for name in dir(Queue) if not name.startswith("_")} == named
