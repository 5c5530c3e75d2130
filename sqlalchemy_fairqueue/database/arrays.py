"""Array literals.

The driver takes ten times as long for a list as for the text that PostgreSQL itself writes for an array.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_needs_no_quotes = re.compile(r"(?!null\Z)[\w.:@/-]+", re.ASCII | re.IGNORECASE).fullmatch


def array(values: list[Any]) -> list[Any] | str:
    """A column of values as a literal; where a value needs quotes, the list itself, which the driver sends."""
    if isinstance(values[0], bytes):
        return values
    words: dict[Any, str] = {}
    for value in set(values):
        if value is None:
            words[value] = "null"
        elif type(value) is int or (type(value) is str and _needs_no_quotes(value)):
            words[value] = str(value)
        else:
            return values
    return f"{{{','.join(map(words.__getitem__, values))}}}"


def integers(numbers: Iterable[int | None]) -> str:
    """Integers as a literal."""
    return f"{{{','.join('null' if number is None else str(number) for number in numbers)}}}"
