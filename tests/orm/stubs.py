"""Stubs of modules that make classes from the catalog, for type checkers: the columns of tables, and the classes.

``python -m tests.orm.stubs`` writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects.postgresql import JSONB

from sqlalchemy_fairqueue import models
from sqlalchemy_fairqueue.models import classes
from sqlalchemy_fairqueue.models.classes import MIXINS
from sqlalchemy_fairqueue.models.types import Xid8Array

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = {JSONB: "dict[str, Any]", Xid8Array: "list[int]"}
_COLUMNS = """\
# The columns of each table for type checkers. `python -m tests.orm.stubs` writes this file.

# ruff: noqa: N801 - named as the tables
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Mapped

from sqlalchemy_fairqueue.models.tables import FairqueueMixin
"""


_CLASSES = """\
# The classes of an installation for type checkers. `python -m tests.orm.stubs` writes this file.

# ruff: noqa: F403, F405 - __all__ names what the star imports
from dataclasses import dataclass
from typing import Any

from sqlalchemy_fairqueue.models.applications import *

MIXINS: dict[str, type[Any]]

"""


def written() -> dict[Path, str]:
    """The text of each stub."""
    tables = {mixin.__tablename__: getattr(models, name).__table__ for name, mixin in MIXINS.items()}
    columns = _COLUMNS + "".join(f"\n{_class(tables[name])}" for name in sorted(tables))
    folder = Path(models.__file__).parent
    return {folder / "columns.pyi": columns, folder / "classes.pyi": _CLASSES + "\n".join(_names()) + "\n"}


def _names() -> Iterator[str]:
    yield from (f"{name} = {name}Mixin" for name in sorted(MIXINS))
    yield from ("", "@dataclass(frozen=True)", "class Models:")
    yield from (f"    {name}: type[{name}Mixin]" for name in sorted(MIXINS))
    yield from ("", "__all__ = [")
    yield from (f'    "{name}",' for name in classes.__all__)
    yield "]"


def _class(table: Any) -> str:
    columns = (f"    {column.name}: Mapped[{_kind(column)}]\n" for column in table.c)
    return f"class {table.name}(FairqueueMixin):\n{''.join(columns)}"


def _kind(column: Any) -> str:
    kind = _KINDS.get(type(column.type)) or column.type.python_type.__name__
    if kind == "list":
        kind = f"list[{column.type.item_type.python_type.__name__}]"
    return f"{kind} | None" if column.nullable else kind


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
