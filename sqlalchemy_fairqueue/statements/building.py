"""How a call of a SQL function is written down."""

from __future__ import annotations

from sqlalchemy import TextClause, text

from sqlalchemy_fairqueue.sql import quoted

TOKENS = {"ids": "bigint[]", "rows": "tid[]", "lease_ids": "bigint[]", "deliveries": "integer[]"}
_POLICY = {"max_concurrency": "integer", "release_interval": "bigint", "release_burst": "integer", "weight": "integer"}
BACKLOG = {"max_backlog": "integer", "drop_when_full": "boolean"}


def policy(version: int) -> dict[str, str]:
    """The parameters of a channel's policy, as a version has them."""
    return _POLICY | BACKLOG if version > 1 else _POLICY


def qualifier(schema: str | None) -> str:
    """What stands before a name of ours; nothing where the search_path finds it."""
    # text() takes :word for a parameter, also in quotes.
    return "" if schema is None else quoted(schema).replace(":", "\\:") + "."


def call(schema: str | None, function: str, columns: str, **types: str) -> TextClause:
    """A select from a function, each argument a parameter of its name and type."""
    arguments = ", ".join(f"p_{name} => cast(:{name} as {type_})" for name, type_ in types.items())
    return text(f"select {columns} from {qualifier(schema)}{function}({arguments})")  # noqa: S608 (quoted)
