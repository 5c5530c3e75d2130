"""Array literals.

psycopg takes ten times as long for a list as for the text that PostgreSQL itself writes for an array.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_needs_no_quotes = re.compile(r"(?!null\Z)[\w.:@/-]+", re.ASCII | re.IGNORECASE).fullmatch


def texts(values: list[str | None]) -> list[str | None] | str:
    """Texts as a literal; where one needs quotes, the list itself, which the driver sends."""
    words: dict[str | None, str] = {}
    for value in set(values):
        if value is None:
            words[value] = "null"
        elif _needs_no_quotes(value):
            words[value] = value
        else:
            return values
    return f"{{{','.join(map(words.__getitem__, values))}}}"


def integers(numbers: Iterable[int | None]) -> str:
    """Integers as a literal."""
    return f"{{{','.join('null' if number is None else format(number, 'd') for number in numbers)}}}"


def row_ids(places: Iterable[str]) -> str:
    """Row ids, like ``(0,1)``, as a literal."""
    return '{"' + '","'.join(places) + '"}'


LITERALS: dict[str, Any] = {
    "text[]": texts,
    "jsonb[]": texts,
    "integer[]": integers,
    "bigint[]": integers,
    "tid[]": row_ids,
}
"""The encoders of a driver that sends such texts as they are."""
