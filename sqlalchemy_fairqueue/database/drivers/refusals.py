"""Refusals of the server, as the drivers' errors tell them."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """What the server said when it refused a statement.

    Attributes:
        sqlstate: The code; "": the error is not the server's.
        message: The first line.
        detail: More about it.
        hint: What to do.
        context: Where in a function it was raised. None: not in one.
    """

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    context: str | None = None


def sqlstate_of(error: BaseException | None) -> str:
    """The SQLSTATE of SQLAlchemy's error or of a driver's; "": the server did not refuse anything."""
    error = getattr(error, "orig", error)
    # psycopg and, by SQLAlchemy, asyncpg; psycopg2.
    return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def refusal_of(error: BaseException) -> Refusal:
    """What the server said, from SQLAlchemy's error or a driver's."""
    original = getattr(error, "orig", None) or error
    sqlstate = sqlstate_of(original)
    said = getattr(original, "diag", None)
    if said is not None:
        # psycopg and psycopg2 name them as libpq does.
        message = said.message_primary or str(original)
        return Refusal(sqlstate, message, said.message_detail, said.message_hint, said.context)
    # SQLAlchemy raises an error of its own from that of asyncpg.
    said = original.__cause__ or original
    fields = (getattr(said, name, None) for name in ("detail", "hint", "context"))
    return Refusal(sqlstate, getattr(said, "message", None) or str(said), *fields)
