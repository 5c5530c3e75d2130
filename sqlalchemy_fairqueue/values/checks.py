"""Checks of arguments. PostgreSQL can store what passes; an error names the argument, the value and what to give."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from reprlib import Repr
from uuid import UUID

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import duration, instant_microseconds, microseconds

NAME_BYTES = 512
# The limit of headers, in bytes of the text that the database makes of them. This text may be longer than Python's,
# since the database writes numbers out.
HEADERS_BYTES = 65_536
# PostgreSQL cuts longer identifiers off.
SCHEMA_BYTES = 63
RESULT_BYTES = 1_048_576
IDS = range(1, 2**63)
_YEAR = timedelta(days=365)
# Values from the database must fit a datetime in UTC.
_LAST = instant_microseconds(datetime.max.replace(tzinfo=UTC))
# Cuts out the middle of a long name, so that both quotes stay.
_shown = Repr()
_shown.maxstring = 80


is_plain_name = re.compile(rf"[\x01-\x7f]{{1,{NAME_BYTES}}}").fullmatch
"""Whether a text is a valid name in ASCII. Most names are, and :func:`check_name` need not be called for them."""


def check_name(what: str, value: object, most: int = NAME_BYTES) -> None:
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is {value!r:.80}; give a str{_as_text(value)}")
    if value.isascii() and 1 <= len(value) <= most and "\x00" not in value:
        return
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} {_shown.repr(value)} holds a lone surrogate; remove it") from None
    if not 1 <= size <= most:
        raise InvalidArgument(f"{what} {_shown.repr(value)} has {size} bytes of UTF-8; use 1 to {most}")
    if "\x00" in value:
        raise InvalidArgument(f"{what} {_shown.repr(value)} holds a NUL character; remove it")


def check_names(**names: object) -> None:
    for what, name in names.items():
        if name is not None:
            check_name(what, name)


def check_page(what: str, last: object, kind: type) -> None:
    if last is not None and not isinstance(last, kind):
        raise InvalidArgument(f"{what} is {last!r:.80}; give the last {kind.__name__} of the page before")


def checked_position(after: object, filters: str, *bounds: range) -> tuple[int, ...]:
    words = after.split(".") if isinstance(after, str) else []
    try:
        numbers = tuple(map(int, words))
    except ValueError:
        numbers = ()
    if len(numbers) != len(bounds) or any(number not in bound for number, bound in zip(numbers, bounds, strict=True)):
        raise InvalidArgument(f"after is {after!r:.80}; give page.next of the page before, with the same {filters}")
    return numbers


def _as_text(value: object) -> str:
    """Return a hint which str to give instead of an int, UUID, time zone or enum; an empty text for other values."""
    if isinstance(value, Enum) and isinstance(value.value, str):
        return f", such as {value.value!r:.80}"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f", such as {str(value)!r:.80}" if is_number or isinstance(value, (UUID, tzinfo)) else ""


def check_count(what: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgument(f"{what} is {value!r:.80}; give an int from {least} to {most}")


def check_flag(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} is {value!r:.80}; give True or False")


def check_message_id(value: object) -> int:
    if value is None:
        raise InvalidArgument(
            "message_id is None, as in a receipt whose transaction has not committed, or whose message was dropped; "
            "commit first, and look at receipt.outcome"
        )
    if hasattr(value, "message_id"):
        raise InvalidArgument(f"message_id is {value!r:.80}; give its message_id, an int")
    check_count("message_id", value, 1, 2**63 - 1)
    assert isinstance(value, int)  # noqa: S101 - it has just been checked
    return value


def check_text(what: str, value: object) -> str:
    """Check that the value is a str. Return it, with replacements for characters that PostgreSQL cannot store."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is {value!r:.80}; give a str")
    return str.encode(str.replace(value, "\x00", "\ufffd"), errors="replace").decode()


def check_duration(what: str, value: object, least: timedelta = timedelta()) -> timedelta:
    # The value may be of a subclass of timedelta.
    plain = duration(microseconds(value)) if isinstance(value, timedelta) else None
    if plain is None or not least <= plain <= _YEAR:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        example = f", such as timedelta(seconds={value!r:.40})" if is_number else ""
        raise InvalidArgument(f"{what} is {value!r:.80}; give a timedelta from {least} to {_YEAR.days} days{example}")
    return plain


def check_instant(what: str, value: object) -> None:
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{what} is {value!r:.80}; give an aware datetime")
    try:
        found = instant_microseconds(value)
    except ValueError as error:
        raise InvalidArgument(f"{what}: {error}") from None
    if found > _LAST:
        raise InvalidArgument(f"{what} is {value!r:.80}, after the year 9999 in UTC; give an earlier instant")


def check_choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise InvalidArgument(f"{what} is {value!r:.80}; give {', '.join(others)} or {last}")
