"""The page of the SQL functions, which the site makes from the headers of their files.

Pages link to the files in ``sqlalchemy_fairqueue/sql``, so that the links work in the repository. On the site the same
links lead to this page.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.files import functions, latest_version

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_VERBS = tuple(
    f"fq_{verb}" for verb in ("enqueue", "dequeue", "hear", "complete", "end_attempts", "heartbeat", "cancel")
)
_SIGNATURE = re.compile(r"create function fairqueue\.(\w+\(.*?\))\n(?:returns (.*?)\n)?language", re.DOTALL)
_LINK = re.compile(r"\]\((?:\.\./)+sqlalchemy_fairqueue/sql(?:/v\d+/(?:\w+/)?(\w+)\.sql)?\)")


def page() -> str:
    """Return the page as Markdown: a section for each function, verbs first, with its header and its signature."""
    version = latest_version()
    texts = functions(version)
    names = [*_VERBS, *sorted(texts.keys() - set(_VERBS))]
    title = (
        f"# SQL functions, version {version}\n\n"
        "Made from the headers of `sqlalchemy_fairqueue/sql/`. Times are microseconds since the epoch, durations "
        "microseconds. The schema stands as `fairqueue`."
    )
    return "\n\n".join([title, *(_section(name, texts[name]) for name in names)]) + "\n"


def _section(name: str, text: str) -> str:
    lines = text.splitlines()
    header = [line.removeprefix("--").strip() for line in takewhile(lambda line: line.startswith("--"), lines)]
    described = " ".join(header).removeprefix(f"{name}: ")
    described = re.sub(r" (Guarantees|Locks|Index|Errors|Source): ", r"\n- \1: ", described).replace("\n", "\n\n", 1)
    found = _SIGNATURE.search(text)
    if found is None:
        raise ValueError(f"{name}.sql has no `create function fairqueue.{name}(...)` that this page can show")
    returns = f"\nreturns {found[2]}" if found[2] else ""
    return f"## {name}\n\n{described}\n\n```sql\n{found[1]}{returns}\n```"


def _write(app: Sphinx) -> None:
    """Write the page beside the others; git ignores it."""
    (app.srcdir / "sql.md").write_text(page(), encoding="utf-8")


def _lead_to_page(app: Sphinx, docname: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx passes them
    """Let links to the files of the functions lead to their sections."""
    source[0] = _LINK.sub(lambda link: f"](/sql.md#{link[1]})" if link[1] else "](/sql.md)", source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the page before Sphinx looks for pages, and change links as it reads them."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _lead_to_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
