"""Designs of queues that others have published, in our own SQL, each in a schema of its name.

All have the same functions: ``enqueue(tenants text[], contents bytea[])``, ``dequeue(limit)``, which gives (id, tenant,
content), and ``complete(ids)``. tests/designs proves that they work, tests/bench/field measures them.
"""

import re
from pathlib import Path
from typing import Final

_HERE = Path(__file__).parent

DESIGNS: Final = {
    "fifo": (_HERE / "tasks.sql", _HERE / "fifo.sql"),
    "partitioned": (_HERE / "tasks.sql", _HERE / "partitioned.sql"),
    "ranked": (_HERE / "tasks.sql", _HERE / "ranked.sql"),
    "numbered": (_HERE / "tasks.sql", _HERE / "numbered.sql"),
    "blocks": (_HERE / "blocks.sql",),
    "channels": (_HERE / "head_pointer.sql", _HERE / "channels.sql"),
}
"""The files that install a design, in order."""


def design_sql(name: str) -> str:
    """Return what installs a design, as one script."""
    sql = "\n".join(path.read_text(encoding="utf-8") for path in DESIGNS[name])
    return re.sub(r"\bdesign\b(?=[.;])", name, sql)
