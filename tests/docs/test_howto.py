"""Each how-to page does what it says, in a database that has the queue installed."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Reader, blocks

_PAGES = [
    page
    for page in sorted((DOCS / "howto").glob("*.md"))
    if any(block.file or block.language == "console" for block in blocks(page) if block.comment != "not run")
]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_the_page_works(user: Reader, page: Path) -> None:
    """Its files and commands work as they stand, and print what the page shows."""
    user.follow(page)
