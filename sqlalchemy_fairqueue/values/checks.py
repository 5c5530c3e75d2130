"""Checks of arguments: PostgreSQL can keep what passes; a refusal names the argument, the value and what to give."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from reprlib import Repr
from uuid import UUID

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import duration, instant_microseconds, microseconds

NAME_BYTES = 512
# Of headers, as text in the database, which writes numbers out: there it may be more than in Python.
HEADERS_BYTES = 65_536
# PostgreSQL cuts longer identifiers off.
SCHEMA_BYTES = 63
RESULT_BYTES = 1_048_576
"""Most bytes of an encoded result."""
_YEAR = timedelta(days=365)
# What comes back from the database is a datetime in UTC.
_LAST = instant_microseconds(datetime.max.replace(tzinfo=UTC))
# Leaves out the middle of a long name, and not a quote.
_shown = Repr()
_shown.maxstring = 80


is_plain_name = re.compile(rf"[\x01-\x7f]{{1,{NAME_BYTES}}}").fullmatch
"""Whether a text is a name, as most are: :func:`check_name` has nothing to say of it."""


def check_name(what: str, value: object, most: int = NAME_BYTES) -> None:
    """Refuse a name that PostgreSQL or an index could not keep.

    Raises:
        InvalidArgument: It is not a str, empty, longer than *most* bytes of UTF-8, or holds a NUL character or a lone
            surrogate.
    """
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
    """Refuse names that PostgreSQL or an index could not keep; None is a name that is not given.

    Raises:
        InvalidArgument: As :func:`check_name`.
    """
    for what, name in names.items():
        if name is not None:
            check_name(what, name)


def check_page(what: str, last: object, kind: type) -> None:
    """Refuse what is not the last item of the page before, unless it is None.

    Raises:
        InvalidArgument: It is of another type.
    """
    if last is not None and not isinstance(last, kind):
        raise InvalidArgument(f"{what} is {last!r:.80}; give the last {kind.__name__} of the page before")


def _as_text(value: object) -> str:
    """Return an example of the text for a value that is often given in its place."""
    if isinstance(value, Enum) and isinstance(value.value, str):
        return f", such as {value.value!r:.80}"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f", such as {str(value)!r:.80}" if is_number or isinstance(value, (UUID, tzinfo)) else ""


def check_count(what: str, value: object, least: int, most: int) -> None:
    """Refuse a number that is not an int between *least* and *most*."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgument(f"{what} is {value!r:.80}; give an int from {least} to {most}")


def check_message_id(value: object) -> int:
    """Check the id of a message that an application gives.

    Raises:
        InvalidArgument: It is None, as a receipt has it before its commit, or nothing that a message can have.
    """
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
    """Return the text without what PostgreSQL cannot store: an error's text must not prevent its settlement.

    Raises:
        InvalidArgument: It is not a str.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is {value!r:.80}; give a str")
    return str.encode(str.replace(value, "\x00", "\ufffd"), errors="replace").decode()


def check_duration(what: str, value: object, least: timedelta = timedelta()) -> timedelta:
    """Return a duration as a plain timedelta, whose arithmetic is known; a subclass may bring its own.

    Raises:
        InvalidArgument: It is not a timedelta between *least* and 365 days.
    """
    plain = duration(microseconds(value)) if isinstance(value, timedelta) else None
    if plain is None or not least <= plain <= _YEAR:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        example = f", such as timedelta(seconds={value!r:.40})" if is_number else ""
        raise InvalidArgument(f"{what} is {value!r:.80}; give a timedelta from {least} to {_YEAR.days} days{example}")
    return plain


def check_instant(what: str, value: object) -> None:
    """Refuse what is not an aware datetime, or is after the last one in UTC."""
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{what} is {value!r:.80}; give an aware datetime")
    try:
        found = instant_microseconds(value)
    except ValueError as error:
        raise InvalidArgument(f"{what}: {error}") from None
    if found > _LAST:
        raise InvalidArgument(f"{what} is {value!r:.80}, after the year 9999 in UTC; give an earlier instant")


def check_choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of a few strings."""
    if not isinstance(value, str) or value not in choices:
        *others, last = (repr(choice) for choice in choices)
        raise InvalidArgument(f"{what} is {value!r:.80}; give {', '.join(others)} or {last}")
