"""Texts of exceptions that suit a log and a terminal, and the version of the library."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata

from sqlalchemy.exc import StatementError

_MOST = 4_000
_MOST_LOGGED = 300
# What stands before each line of the traceback of an exception group.
_MARGIN = re.compile(r"^ *[|+] ?")
# Additions of PostgreSQL, its drivers and SQLAlchemy to the message of an error: rows, statements and parameters.
_ADDED = re.compile(
    r"^(?:(?:DETAIL|HINT|CONTEXT|QUERY|LINE \d+): |\[(?:SQL|parameters): |\(Background on )", re.MULTILINE
)


@cache
def library_version() -> str | None:
    """Return the version of the library; None if it runs from a zipapp, or from a folder that was copied."""
    try:
        return metadata.version("sqlalchemy-fairqueue")
    except metadata.PackageNotFoundError:
        return None


def said(error: BaseException, most: int = _MOST) -> str:
    """Return the text of an exception on one line, cut after *most* characters. This function never raises.

    The SQL, parameters and details after a server's message are left out, also if *error* only quotes a database error.
    """
    if isinstance(error, StatementError) and error.orig is not None:
        error = error.orig
    text = _text(error)
    if (added := _ADDED.search(text)) is not None and added.start() > 0:
        text = text[: added.start()].strip()
    return shortened(text, most)


def logged(error: BaseException) -> str:
    return said(error, _MOST_LOGGED)


def traced(error: BaseException) -> BaseException | None:
    """Return the exception, for ``exc_info``; None if its traceback would put SQL, parameters or rows into the log."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        found = left.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, StatementError) or _ADDED.search(_text(found)):
            return None
        left += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            left += found.exceptions
    return error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as again:  # noqa: BLE001 - an exception's own __str__ may do anything
        return f"(its text cannot be had: __str__ raises {type(again).__name__})"


def shortened(text: str, most: int) -> str:
    line = " ".join(text[:most].split())
    return line if len(text) <= most else f"{line} ... ({len(text):,} characters)"


def exception_line(error: str | None) -> str | None:
    """Return the line of a stored error that names the exception: the line below its traceback, or the first line."""
    if error is None:
        return None
    lines = [_MARGIN.sub("", line) for line in error.strip().splitlines()] or [""]
    behind = max((number for number, line in enumerate(lines, 1) if line.startswith("  File ")), default=0)
    return next((line for line in lines[behind:] if line[:1].strip() and line != "[...]"), lines[-1])


def clean(text: str) -> str:
    r"""Escape the characters that a terminal would not print, or would obey."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )
