"""Each tutorial works as it stands, in an empty folder and an empty database."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Reader

_PAGES = sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_the_tutorial_works(newcomer: Reader, page: Path) -> None:
    """Its files, programs and tests work, and print what the page shows."""
    newcomer.follow(page)
