"""The table of docs/roles.md, made from roles.toml.

Make it by ``python -m tests.roles.page``.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import KINDS, function_roles

PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "roles.md"
BEGIN, END = "<!-- begin of the table -->\n", "<!-- end of the table -->"
_WIDTH = 120


def table() -> str:
    """The functions of the newest version with the kinds that may execute them, and those that nobody may."""
    listed = function_roles(latest_version())
    head = [f"| function | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    rows = [
        f"| `{name}` | {' | '.join('yes' if kind in kinds else '' for kind in KINDS)} |".replace("  ", " ")
        for name, kinds in listed.items()
        if kinds
    ]
    inner = ", ".join(f"`{name}`" for name, kinds in listed.items() if not kinds)
    text = fill(f"Called by these alone, and by nobody but the owner: {inner}.", _WIDTH)
    return "\n".join([*head, *rows, "", text]) + "\n"


def page() -> str:
    """The page with the table made anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
