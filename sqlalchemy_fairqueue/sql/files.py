"""Which file is version N of which object. Read through importlib.resources, so that a zipped package works too."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LATEST_VERSION = 1
"""The newest version of the schema that this library knows, and the one that it uses."""

_STATEMENT_END = re.compile(r";[ \t]*$", re.MULTILINE)
_RELATION = re.compile(
    r"^\s*(?:create (?:unique )?index|create table fairqueue\.|constraint) ?(\w+)(.*)$", re.MULTILINE
)


def versions() -> range:
    """Every version of the schema that this library can install, oldest first."""
    return range(1, LATEST_VERSION + 1)


def functions(version: int) -> Mapping[str, str]:
    """The functions of a version: ``create function`` by name, with the literal qualifier ``fairqueue.``.

    Raises:
        ValueError: The version is not known.
    """
    texts = _newest(_known(version), "")
    return MappingProxyType({name: text.removesuffix(";") for name, text in texts.items()})


def tables(version: int) -> Mapping[str, tuple[str, ...]]:
    """The tables of a version: the statements that make the table and its indexes, by table, in order.

    Raises:
        ValueError: The version is not known.
    """
    texts = _newest(_known(version), "tables")
    return MappingProxyType({name: _statements_of(text) for name, text in texts.items()})


def relations(version: int) -> tuple[str, ...]:
    """Every name that the tables of a version take in their schema: tables, indexes, indexes of constraints."""
    found = [
        match[1]
        for statements in tables(version).values()
        for statement in statements
        for match in _RELATION.finditer(statement)
        if not match[2].startswith(" check")
    ]
    return tuple(sorted(set(found)))


def _known(version: int) -> int:
    if type(version) is not int or version not in versions():
        known = ", ".join(str(number) for number in versions())
        problem = (
            f"there is no fairqueue version {version!r}: this library knows {known}; "
            "give one of them, or upgrade the library"
        )
        raise ValueError(problem)
    return version


@cache
def _newest(version: int, folder: str) -> Mapping[str, str]:
    texts: dict[str, str] = {}
    for number in range(1, version + 1):
        place = files(__package__) / f"v{number}"
        place = place / folder if folder else place
        if place.is_dir():
            for file in place.iterdir():
                if file.name.endswith(".sql"):
                    texts[file.name.removesuffix(".sql")] = file.read_text(encoding="utf-8").strip()
    return MappingProxyType(dict(sorted(texts.items())))


def _statements_of(text: str) -> tuple[str, ...]:
    # Each statement of a table's file ends with a semicolon at the end of a line, and nothing else does.
    return tuple(part.strip() for part in _STATEMENT_END.split(text) if part.strip())
