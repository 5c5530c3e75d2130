"""The SQL reference page, made from the headers of the files.

Make it by ``python -m tests.unit.sql_reference > docs/sql.md``.
"""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from textwrap import fill

from sqlalchemy_fairqueue.sql.files import functions, latest_version

_VERBS = ("enqueue", "dequeue", "hear", "complete", "release", "retry", "bury", "extend", "cancel")
_WIDTH = 120
_SIGNATURE = re.compile(r"create function fairqueue\.(\w+\(.*?\))\n(?:returns (.*?)\n)?language", re.DOTALL)


def reference() -> str:
    """The page as Markdown: one section a function, verbs first, each with its header and its signature."""
    version = latest_version()
    texts = functions(version)
    verbs = [f"fq_{verb}" for verb in _VERBS]
    names = verbs + sorted(texts.keys() - set(verbs))
    sections = [_section(name, texts[name]) for name in names]
    about = (
        "Made from the headers of `sqlalchemy_fairqueue/sql/` by `python -m tests.unit.sql_reference`. "
        "Times are microseconds since the epoch, durations microseconds. The schema stands as `fairqueue`."
    )
    title = f"# SQL functions, version {version}\n\n{_wrapped(about)}"
    return "\n\n".join([title, *sections]) + "\n"


def _section(name: str, text: str) -> str:
    lines = text.splitlines()
    header = [line.removeprefix("--").strip() for line in takewhile(lambda line: line.startswith("--"), lines)]
    described = " ".join(header).removeprefix(f"{name}: ")
    described = re.sub(r" (Guarantees|Locks|Index|Errors|Source): ", r"\n- \1: ", described)
    described = "\n".join(map(_wrapped, described.splitlines())).replace("\n- ", "\n\n- ", 1)
    found = _SIGNATURE.search(text)
    if found is None:
        raise ValueError(f"{name}.sql has no `create function fairqueue.{name}(...)` that this page can show")
    returns = f"\nreturns {found[2]}" if found[2] else ""
    return f"## {name}\n\n{described}\n\n```sql\n{found[1]}{returns}\n```"


def _wrapped(line: str) -> str:
    """A paragraph or an item of a list, in lines of the page's width."""
    indent = "  " if line.startswith("- ") else ""
    return fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(reference())
