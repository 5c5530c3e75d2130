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
# A test of each page and rule would be 850 tests, which take longer than the reading.
_EACH_FOLDER = pytest.mark.parametrize(
    "folder", sorted({page.parent for page in _TEXTS}), ids=lambda folder: str(folder.relative_to(_ROOT))
)
_WIDTH = 120
_DECISION_LINES = 25
_LINK = re.compile(r"\]\(([^)\s]+)\)")

pytestmark = pytest.mark.skipif(not _PAGES, reason="the installed wheel is tested without the docs")


def _anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {title.replace(" ", "-") for title in headings} | set(re.findall(r'<a id="([^"]+)">', text))


def _of(folder: Path) -> dict[Path, str]:
    return {page: page.read_text() for page in _TEXTS if page.parent == folder}


@_EACH_FOLDER
def test_links_lead_somewhere(folder: Path) -> None:
    """Every link to another page, or a place on one, has its end there."""
    dead = []
    for page, text in _of(folder).items():
        for link in _LINK.findall(text):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                dead.append((page.name, link))
    assert dead == []


@_EACH_FOLDER
def test_lines_are_short(folder: Path) -> None:
    """Lines outside tables and code have at most 120 characters."""
    long = []
    for page, text in _of(folder).items():
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        long += [(page.name, line) for line in prose.splitlines() if len(line) > _WIDTH and not line.startswith("|")]
    assert long == []


def test_decisions_are_short() -> None:
    """A decision has at most 25 lines, and the index names it."""
    decisions = sorted(_ROOT.glob("docs/decisions/0*.md"))
    assert [page.name for page in decisions if len(page.read_text().splitlines()) > _DECISION_LINES] == []
    index = (_ROOT / "docs/decisions/README.md").read_text()
    assert [page.name for page in decisions if f"({page.name})" not in index] == []
