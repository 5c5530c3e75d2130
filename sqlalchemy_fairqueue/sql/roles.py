"""Kinds of work that a role can be granted, and the functions that each may execute: ``vN/roles.toml``.

That file is the only list; the one of a later version names what differs from the version before. What a migration
grants, what ``doctor`` and ``fairqueue roles`` compare, and the tables of the page on roles are made from it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sqlalchemy_fairqueue.sql.files import checked_version, folder

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Final = ("producer", "consumer", "monitor", "operator", "loader")
"""The kinds of work, as they are granted."""
BOUND_BY_QUEUE: Final = ("producer", "consumer", "operator", "loader")
"""Kinds whose grants can be bound to named queues."""
BOUND_BY_CHANNEL: Final = ("producer",)
"""Kinds whose grants can be bound to named channels."""


def function_roles(version: int) -> Mapping[str, tuple[str, ...]]:
    """The kinds that may execute each function of a version; none for those that only other functions call.

    Raises:
        ValueError: The version is not known.
    """
    return _read(checked_version(version))


def role_functions(version: int, kind: str) -> tuple[str, ...]:
    """The functions that a kind of work may execute, by name.

    Raises:
        ValueError: The version or the kind is not known.
    """
    if kind not in KINDS:
        problem = f"there is no kind of work {kind!r}; give one of {', '.join(KINDS)}"
        raise ValueError(problem)
    return tuple(sorted(name for name, kinds in function_roles(version).items() if kind in kinds))


@cache
def _read(version: int) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for step in range(1, version + 1):
        file = folder(step) / "roles.toml"
        if file.is_file():
            read = tomllib.loads(file.read_text(encoding="utf-8"))
            found |= {name: tuple(kinds) for name, kinds in read["functions"].items()}
    return MappingProxyType(dict(sorted(found.items())))
