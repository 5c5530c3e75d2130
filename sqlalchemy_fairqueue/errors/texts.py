"""Texts of any exceptions, in a form that a log and a terminal can bear."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

_MOST = 4_000
_BACKGROUND = "(Background on this error at: "


def said(error: BaseException) -> str:
    """The text of any exception, on one line, cut after some thousand characters. It never raises.

    For a statement that failed it is the server's message, without the parameters.
    """
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    try:
        text = str(error)
        said = " ".join(text[:_MOST].split())
        return said if len(text) <= _MOST else f"{said} ... ({len(text):,} characters)"
    except BaseException as again:  # noqa: BLE001 - an exception's own __str__ may do anything
        return f"(its text cannot be had: __str__ raises {type(again).__name__})"


def last_line(error: str | None) -> str | None:
    """The last line of an error, which names the exception; not the address that SQLAlchemy writes below its own."""
    if error is None:
        return None
    lines = error.strip().splitlines()
    told = [line for line in lines if not line.startswith(_BACKGROUND)]
    return (told or lines or [""])[-1]


def clean(text: str) -> str:
    r"""The text with everything that a terminal does not show, or obeys, written as an escape: ``\n``, ``\x1b``."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )
