"""The pages of the documentation know each other."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(_ROOT.glob("docs/*.md"))
_TEXTS = [
    _ROOT / "README.md",
    *sorted(_ROOT.glob(".github/*.md")),
    *sorted(_ROOT.glob("docs/**/*.md")),
]
_WIDTH = 120
_DECISION_LINES = 25
_LINK = re.compile(r"\]\(([^)\s]+)\)")

pytestmark = pytest.mark.skipif(not _PAGES, reason="the installed wheel is tested without the docs")


def _anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {title.replace(" ", "-") for title in headings} | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", _TEXTS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to another page, or a place on one, has its end there."""
    dead = []
    for link in _LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", _TEXTS, ids=lambda page: page.name)
def test_lines_are_short(page: Path) -> None:
    """Lines outside tables and code have at most 120 characters."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > _WIDTH and not line.startswith("|")] == []


@pytest.mark.parametrize("page", sorted(_ROOT.glob("docs/decisions/0*.md")), ids=lambda page: page.name)
def test_decisions_are_short(page: Path) -> None:
    """A decision has at most 25 lines, and the index names it."""
    assert len(page.read_text().splitlines()) <= _DECISION_LINES
    assert f"({page.name})" in (page.parent / "README.md").read_text()
