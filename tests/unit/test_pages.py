"""The pages of the documentation know each other."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(_ROOT.glob("docs/*.md"))
_LINK = re.compile(r"\]\(([^)\s]+)\)")

pytestmark = pytest.mark.skipif(not _PAGES, reason="the installed wheel is tested without the docs")


def _anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {title.replace(" ", "-") for title in headings} | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_the_front_page_names_it(page: Path) -> None:
    """Whoever begins at the front finds every page."""
    assert f"(docs/{page.name})" in (_ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", [_ROOT / "README.md", *_PAGES], ids=lambda page: page.name)
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
