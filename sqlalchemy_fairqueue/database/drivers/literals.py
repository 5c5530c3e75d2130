"""Array literals.

psycopg takes ten times as long for a list as for the text that PostgreSQL itself writes for an array.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_needs_no_quotes = re.compile(r"(?!null\Z)[\w.:@/-]+", re.ASCII | re.IGNORECASE).fullmatch


class _Contents(str):
    """Contents as a parameter, which the logs of an engine with ``echo`` do not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The length of each."""
        sizes = [max(len(one) - len('"\\\\x"'), 0) // 2 for one in self[1:-1].split(",")]
        return f"[{', '.join(f'<{size:,} bytes>' for size in sizes)}]"


def texts(values: Iterable[str | None]) -> str:
    """Texts as a literal."""
    values = list(values)
    words = {value: _word(value) for value in set(values)}
    return f"{{{','.join(map(words.__getitem__, values))}}}"


def _word(value: str | None) -> str:
    if value is None:
        return "null"
    if _needs_no_quotes(value):
        return value
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def contents(values: Sequence[bytes | None]) -> str:
    """Contents as a literal, in hexadecimal."""
    try:
        return _Contents('{"\\\\x' + '","\\\\x'.join(map(bytes.hex, cast("Sequence[bytes]", values))) + '"}')
    except TypeError:
        # Some are None, as few contents are.
        words = ("null" if value is None else f'"\\\\x{value.hex()}"' for value in values)
        return _Contents(f"{{{','.join(words)}}}")


def integers(numbers: Iterable[int | None]) -> str:
    """Integers as a literal."""
    return f"{{{','.join(map(str, numbers))}}}".replace("None", "null")


def booleans(values: Iterable[bool | None]) -> str:
    """Booleans as a literal."""
    return f"{{{','.join('null' if value is None else str(value).lower() for value in values)}}}"


def row_ids(ctids: Iterable[str]) -> str:
    """Row ids, like ``(0,1)``, as a literal."""
    return '{"' + '","'.join(ctids) + '"}'


LITERALS: dict[str, Any] = {
    "bytea[]": contents,
    "text[]": texts,
    "jsonb[]": texts,
    "integer[]": integers,
    "bigint[]": integers,
    "tid[]": row_ids,
    "uuid[]": texts,
    "boolean[]": booleans,
}
"""The encoders of a driver that sends such texts as they are."""
