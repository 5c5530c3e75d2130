"""Pages that the site does not have lead somewhere. Sphinx checks the links of all others."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted(_ROOT.glob(".github/*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")

pytestmark = pytest.mark.skipif(len(_PAGES) == 1, reason="the installed wheel is tested without these pages")


def _anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {title.replace(" ", "-") for title in headings} | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to another page, or a place on one, has its end there."""
    dead = []
    for link in _LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in _anchors(target))):
            dead.append(link)
    assert dead == []
