"""Headers of rows: checked as the database checks them, as one refusal there would fail the whole load.

This module must not open connections.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from sqlalchemy_fairqueue.values.checks import HEADERS_BYTES
from sqlalchemy_fairqueue.values.messages import GROUP_HEADER

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlalchemy_fairqueue.spark.writing.payloads import Problems

# Room for the group in the headers of a member.
_GROUP_BYTES = 64
# Blanks make a text at most twice as long. Numbers with an exponent, and none else, make it longer than that.
_SHORT = (HEADERS_BYTES - _GROUP_BYTES) // 2
_LONG_NUMBER = r"[\[:,\s]-?[0-9.]+[eE]|[0-9]{300}"
# fq_headers_fit takes any number where jsonb has at most 1,000 bytes. jsonb has less than six times those of its text.
_ANY_NUMBER = 160
_LEAST, _MOST = Decimal("1e-300"), Decimal("1e300")
# A key may be written with escapes.
_MAYBE_GROUP = rf'"{GROUP_HEADER}"|\\u'
# PostgreSQL's numeric has no more digits after the point.
_DECIMALS = 16_383


class BadNumber(Exception):
    """A number that the database refuses in these headers."""


def check_headers(texts: pa.Array, groups: pa.Array | None, problems: Problems) -> None:
    """Note headers that are too long as the database writes them, or have what it refuses, or what a group sets.

    Args:
        texts: The headers as JSON; null where there are none.
        groups: The groups of the rows. None: the frame has no such column.
        problems: The problems found.
    """
    long = pc.or_(pc.greater(pc.binary_length(texts), _SHORT), pc.match_substring_regex(texts, _LONG_NUMBER))
    for index in pc.indices_nonzero(pc.fill_null(long, False)).to_pylist():
        grouped = groups is not None and groups[index].is_valid
        if problem := _too_long(texts[index].as_py(), grouped=grouped):
            problems.setdefault(index, problem)
    if groups is None:
        return
    named = pc.and_(groups.is_valid(), pc.fill_null(pc.match_substring_regex(texts, _MAYBE_GROUP), False))
    for index in pc.indices_nonzero(named).to_pylist():
        if GROUP_HEADER in json.loads(texts[index].as_py()):
            problems.setdefault(
                index, f"a member of a group has a header {GROUP_HEADER!r}, which the group sets; rename it"
            )


def jsonb_size(text: str) -> int:
    """The bytes of a JSON text after PostgreSQL has read and written it as jsonb.

    A key that is there twice counts twice.

    Raises:
        BadNumber: It has a number that fq_headers_fit or jsonb refuses.
    """
    any_number = len(text.encode()) <= _ANY_NUMBER
    more = 0

    def number(digits: str) -> int:
        nonlocal more
        more += _number_size(digits, any_number=any_number) - 1
        return 0

    document = json.loads(text, parse_float=number, parse_int=number)
    # The separators are those of jsonb.
    return len(json.dumps(document, ensure_ascii=False).encode()) + more


def _number_size(text: str, *, any_number: bool) -> int:
    """The bytes of a number as jsonb writes it: without an exponent."""
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise BadNumber from None
    sign, digits, exponent = value.as_tuple()
    decimals = max(-int(exponent), 0)
    if decimals > _DECIMALS or (value and not any_number and not _LEAST <= abs(value) <= _MOST):
        raise BadNumber
    whole = max(len(digits) + int(exponent), 1) if value else 1
    return whole + (decimals + 1 if decimals else 0) + (sign if value else 0)


def _too_long(text: str, *, grouped: bool) -> str | None:
    try:
        size = jsonb_size(text)
    except BadNumber:
        return "headers have a number beyond 1e300 or closer to zero than 1e-300; keep it in the payload"
    if size > HEADERS_BYTES:
        return f"headers have {size:,} bytes of JSON, more than {HEADERS_BYTES:,}; keep what is large in the payload"
    most = HEADERS_BYTES - _GROUP_BYTES
    if grouped and size > most:
        return f"headers of a member of a group have more than {most:,} bytes of JSON"
    return None
