"""``models/columns.pyi``, the columns of all tables for type checkers, written from the columns themselves.

``python -m tests.orm.columns`` writes it.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlalchemy.dialects.postgresql import JSONB

from sqlalchemy_fairqueue import models
from sqlalchemy_fairqueue.models.types import Xid8Array

_KINDS = {JSONB: "dict[str, Any]", Xid8Array: "list[int]"}
STUB = Path(models.__file__).parent / "columns.pyi"
_HEADER = """\
# The columns of each table for type checkers. `python -m tests.orm.columns` writes this file.

# ruff: noqa: N801 - named as the tables
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Mapped

from sqlalchemy_fairqueue.models.tables import FairqueueMixin
"""


def written() -> str:
    """The text of the file."""
    tables = {cls.__table__.name: cls.__table__ for cls in attrgetter(*models.Models.__dataclass_fields__)(models)}
    return _HEADER + "".join(f"\n{_class(tables[name])}" for name in sorted(tables))


def _class(table: Any) -> str:
    columns = (f"    {column.name}: Mapped[{_kind(column)}]\n" for column in table.c)
    return f"class {table.name}(FairqueueMixin):\n{''.join(columns)}"


def _kind(column: Any) -> str:
    kind = _KINDS.get(type(column.type)) or column.type.python_type.__name__
    if kind == "list":
        kind = f"list[{column.type.item_type.python_type.__name__}]"
    return f"{kind} | None" if column.nullable else kind


if __name__ == "__main__":
    STUB.write_text(written(), encoding="utf-8")
