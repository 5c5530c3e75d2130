"""Designs of queues that others have published, in our own SQL, each in a schema of its name.

All have the same functions: ``enqueue(tenants text[], contents bytea[])``, ``dequeue(limit)``, which gives (id, tenant,
content), and ``complete(ids)``. tests/designs proves that they work, tests/bench/field measures them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE = Path(__file__).parent
_HEAD_POINTER = _HERE.parent / "baselines" / "head_pointer.sql"

DESIGNS: Final = {
    "fifo": (_HERE / "fifo.sql",),
    "partitioned": (_HERE / "partitioned.sql",),
    "blocks": (_HERE / "blocks.sql",),
    "leased": (_HERE / "leased.sql",),
    "priority": (_HERE / "priority.sql", _HERE / "priority_first.sql"),
    "channels": (_HEAD_POINTER, _HERE / "channels.sql"),
}
"""The files that install a design, in order. `priority` is measured with the index by priority first."""

PRIORITY_INDEXES: Final = {
    name: (_HERE / "priority.sql", _HERE / f"priority_{name}.sql") for name in ("separate", "first", "last")
}
"""The same for each strategy to index a priority column."""


def design_sql(files: tuple[Path, ...]) -> str:
    """What installs a design, as one script."""
    return "\n".join(path.read_text(encoding="utf-8") for path in files)
