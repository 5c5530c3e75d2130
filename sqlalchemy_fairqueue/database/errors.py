"""Reads errors of the database: what the server refused, whether it is away, and which of our errors that means."""

from __future__ import annotations

import re
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_fairqueue.errors import FairQueueError, SchemaMismatch, UnknownChannel
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, latest_version
from sqlalchemy_fairqueue.sql.schema import IS_UNRELEASED, UNRELEASED, named_schema, schema_argument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Matches a row that an error quotes. The match ends where the error's context begins and not at the end of the line,
# since a value may have several lines.
_ROW = re.compile(r"(Failing row contains) \(.*?(?=\nCONTEXT:|\Z)", re.DOTALL)
# The error of asyncpg for a parameter that it cannot encode.
_ARGUMENT = re.compile(r"(invalid input for query argument \$\d+).*", re.DOTALL)
# SQLSTATEs, and whole classes of them (two characters), of a server that cannot serve now, whatever it was asked: the
# connection is lost or refused, the server takes no writes, a transaction or statement took too long, resources are
# short, a lock is held, an operator intervened, the system failed.
_AWAY = ("08", "25006", "25P03", "25P04", "28", "3D000", "53", "55P03", "57", "58")
# Classes of driver errors that say the same if they have no SQLSTATE. An error about the statement itself has an
# SQLSTATE, or is of another class.
_AWAY_WITHOUT_STATE = {"OperationalError", "InterfaceError", "InternalClientError"}
# A serialization failure, a deadlock.
_SERIALIZATION = {"40001", "40P01"}
_DRIVERS = {"psycopg", "psycopg2", "asyncpg"}


class Refusal(NamedTuple):
    """How the server described a refused statement; *sqlstate* is empty if the error is not from the server."""

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    context: str | None = None


def sqlstate_of(error: BaseException | None) -> str:
    error = getattr(error, "orig", error)
    # The attribute of psycopg and of asyncpg through SQLAlchemy; then that of psycopg2.
    return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def is_away(error: BaseException) -> bool:
    """Return whether an error says that the database cannot serve now; the same call may succeed later."""
    if isinstance(error, OSError):
        # asyncpg raises ConnectionRefusedError while it connects, and TimeoutError after its command_timeout.
        return any(_is_of_driver(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__))
    if isinstance(error, PoolTimeout) or getattr(error, "connection_invalidated", False) is True:
        return True
    classes = type(error).__mro__
    if not isinstance(error, DBAPIError) and not any(_is_of_driver(one.__module__) for one in classes):
        return False
    if state := sqlstate_of(error):
        return state.startswith(_AWAY)
    return not _AWAY_WITHOUT_STATE.isdisjoint(
        one.__name__ for one in (*classes, *type(getattr(error, "orig", 0)).__mro__)
    )


def is_serialization_failure(error: BaseException) -> bool:
    return sqlstate_of(error) in _SERIALIZATION


def _is_of_driver(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _DRIVERS


def refusal_of(error: BaseException) -> Refusal:
    original = getattr(error, "orig", None) or error
    sqlstate = sqlstate_of(original)
    said = getattr(original, "diag", None)
    if said is not None:
        # psycopg and psycopg2 name the fields of an error as libpq does.
        message = said.message_primary or str(original)
        return Refusal(sqlstate, message, said.message_detail, said.message_hint, said.context)
    # With asyncpg, SQLAlchemy raises an error of its own. Its cause is asyncpg's error, which has the fields.
    said = original.__cause__ or original
    fields = (getattr(said, name, None) for name in ("detail", "hint", "context"))
    return Refusal(sqlstate, getattr(said, "message", None) or str(said), *fields)


def hide_row(error: BaseException) -> None:
    """Remove from an error's texts the row that PostgreSQL refused, or the parameter that asyncpg cannot encode."""
    for one in _causes(error):
        if one.args and isinstance(one.args[0], str):
            one.args = (_hidden(one.args[0]), *one.args[1:])
        # An error of asyncpg makes its text anew from its detail. Errors of the other drivers keep the detail in their
        # diagnostics too, which nobody can change, but no text shows the diagnostics.
        if isinstance(detail := getattr(one, "detail", None), str):
            one.detail = _hidden(detail)  # type: ignore[attr-defined]


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    original = getattr(error, "orig", None)
    if original is not None:
        yield original
        if original.__cause__ is not None:
            yield original.__cause__


def _hidden(text: str) -> str:
    return _ARGUMENT.sub(r"\1", _ROW.sub(r"\1 (...)", text))


def refuse(error: StatementError, doing: str, parameters: Mapping[str, Any]) -> NoReturn:
    """Raise this package's error for the SQLSTATE of a failed call, or else the SQLAlchemy error itself.

    The text of neither error shows contents or rows; the ``params`` of the SQLAlchemy error still have them.
    """
    error.hide_parameters = True
    hide_row(error)
    refusal = translated(error, doing, parameters) if isinstance(error, DBAPIError) else None
    if refusal is None:
        raise error
    raise refusal from error


def translated(error: DBAPIError, doing: str, parameters: Mapping[str, Any]) -> FairQueueError | None:
    refusal = refusal_of(error)
    kind = FairQueueError.of_sqlstate.get(refusal.sqlstate)
    if kind is None:
        return None
    problem = f"{refusal.message} ({refusal.detail})" if refusal.detail else refusal.message
    hint = refusal.hint
    if kind is SchemaMismatch:
        # An error with a context was raised within a function, so fairqueue is installed.
        hint = to_repair() if refusal.context else to_install()
    elif kind is UnknownChannel:
        hint = "correct the name" + (", or pause(..., new=True) makes the channel" if parameters.get("paused") else "")
    named = {"schedule": parameters.get("name"), **parameters}
    # Error classes that are dataclasses take the parameters of the call that have the names of their attributes.
    attributes = {name: named[name] for name in getattr(kind, "__dataclass_fields__", ()) if name in named}
    return kind(f"cannot {doing}: {problem}; {hint or 'see the documentation of the call'}", **attributes)


def to_install(schema: str | None = None) -> str:
    operation = f"op.create_fairqueue(version={latest_version()}{schema_argument(schema)})"
    return (
        f"put {operation} into an Alembic migration and run it, or give Queue(schema=...) the schema it was installed "
        f"in; a database without migrations, as of tests, gets it by install_fairqueue(engine{schema_argument(schema)})"
    )


def to_repair() -> str:
    return (
        "a function of fairqueue is there, and what it names is not: after a rename of its schema put "
        f"op.repair_fairqueue(version={latest_version()}, schema=...) with the new name into an Alembic migration and "
        "run it, otherwise see by find_drift() what is missing"
    )


def too_old(version: int, schema: str | None) -> str | None:
    if version >= NEEDED_VERSION:
        return None
    if version == UNRELEASED:
        return f"{named_schema(schema)} {IS_UNRELEASED}"
    return (
        f"{named_schema(schema)} holds version {version} of fairqueue's schema, and this library needs version "
        f"{NEEDED_VERSION}"
    )


def to_upgrade(version: int, schema: str | None) -> str:
    if version == UNRELEASED:
        return f"op.create_fairqueue(version={latest_version()}{schema_argument(schema)})"
    return f"op.upgrade_fairqueue({version}, {NEEDED_VERSION}{schema_argument(schema)})"
