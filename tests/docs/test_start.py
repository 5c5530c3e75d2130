"""The page for those who begin: everything on it works as it stands."""

import re

from tests.docs.pages import DOCS, Reader


def test_the_start_page(newcomer: Reader) -> None:
    """A newcomer who follows the page sees that alice did not wait for bob."""
    newcomer.follow(DOCS / "start.md")
    [said] = [one for one in newcomer.output if "those of alice" in one]
    assert said.startswith("503 files were parsed")
    # The oldest first, hers would be the last three of 503. They are served 2nd, 4th and 6th; on a busy machine others
    # overtake a handler whose thread or connection begins late.
    assert max(map(int, re.findall(r"\d+", said.partition("[")[2]))) < 250
    assert "1 passed" in newcomer.output[-1]
