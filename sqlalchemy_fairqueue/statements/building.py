"""How a call of a SQL function is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import TextClause, TextualSelect, column, text

from sqlalchemy_fairqueue.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Collection

Clause: TypeAlias = TextClause | TextualSelect
"""What a builder gives."""

TOKENS = {"ids": "bigint[]", "rows": "tid[]", "lease_ids": "bigint[]", "deliveries": "integer[]"}
POLICY = {
    "max_concurrency": "integer",
    "release_interval": "bigint",
    "release_burst": "integer",
    "weight": "integer",
    "max_backlog": "integer",
    "drop_when_full": "boolean",
}


def qualifier(schema: str | None) -> str:
    """What stands before a name of ours; nothing where the search_path finds it."""
    # text() takes :word for a parameter, also in quotes.
    return "" if schema is None else quoted(schema).replace(":", "\\:") + "."


def call(schema: str | None, function: str, columns: str, *, alone: Collection[str] = (), **types: str) -> Clause:
    """A select from a function, each argument a parameter of its name and type.

    Args:
        schema: Of the installation.
        function: The function.
        columns: What to select. Where they have names, SQLAlchemy remembers what rows look like.
        alone: Arrays of one element, which is the parameter then: the driver takes several times as long for an array
            as for a value.
        types: Of the parameters.
    """
    arguments = ", ".join(f"p_{name} => {_argument(name, type_, alone=name in alone)}" for name, type_ in types.items())
    clause = text(f"select {columns} from {qualifier(schema)}{function}({arguments})")  # noqa: S608 (quoted)
    names = [one.split()[-1] for one in columns.split(", ")]
    return clause.columns(*map(column, names)) if all(map(str.isidentifier, names)) else clause


def _argument(name: str, type_: str, *, alone: bool) -> str:
    return f"array[cast(:{name} as {type_.removesuffix('[]')})]" if alone else f"cast(:{name} as {type_})"
