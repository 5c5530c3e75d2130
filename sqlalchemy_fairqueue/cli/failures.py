"""Converts any exception to the error of a command."""

from __future__ import annotations

from socket import gaierror

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus, one_line, refused_error, usage_error
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from sqlalchemy_fairqueue.doctor.installation import Unusable, is_unreachable, needed_kind
from sqlalchemy_fairqueue.errors import FairQueueError, InvalidArgument, SchemaMismatch, StartError, WorkerError

_NO_PRIVILEGE = "42501"

_DRIVERS = {
    "psycopg": "psycopg[binary]",
    "psycopg2": "sqlalchemy-fairqueue[psycopg2]",
    "asyncpg": "sqlalchemy-fairqueue[asyncpg]",
}
"""What to install for a driver that cannot be imported."""

DRIVER_ERRORS = (DBAPIError, ConnectionError, TimeoutError, gaierror)
"""Errors of an engine that cannot use its database; while asyncpg connects, it raises the system's own errors."""

# Errors of these classes are shown with their own message. Each class has an exit status, and a kind, which is a word
# for programs. The first class that fits counts.
_OURS: tuple[tuple[type[Exception], ExitStatus, str], ...] = (
    (StartError, ExitStatus.FAILED, "failed"),
    (InvalidArgument, ExitStatus.USAGE, "usage"),
    (WorkerError, ExitStatus.USAGE, "usage"),
    (SchemaMismatch, ExitStatus.SCHEMA, "schema_mismatch"),
    (FairQueueError, ExitStatus.REFUSED, "refused"),
)


def command_error(error: BaseException, database: str | None = None) -> CommandError:
    """Convert any exception to the error of a command; *database* is a URL without password, for the message."""
    match error:
        case CommandError():
            return error
        case DBAPIError():
            return _database_error(error, database or "the database")
        case ConnectionError() | TimeoutError() | gaierror() if database is not None:
            return _away(database, error)
        case PoolTimeout():
            message = f"no connection to {database or 'the database'} became free: {one_line(error)}"
            return CommandError(message, ExitStatus.AWAY, "database_away")
        case Unusable():
            status = ExitStatus.REFUSED if error.kind == "privilege_missing" else ExitStatus.SCHEMA
            return CommandError(str(error), status, error.kind, error.remedy)
    return _other_error(error)


def _other_error(error: BaseException) -> CommandError:
    for kind, status, word in _OURS:
        if isinstance(error, kind):
            return CommandError(str(error), status, word)
    driver = driver_error(error) if isinstance(error, ImportError) else None
    message = f"{type(error).__name__}: {one_line(error)}; --debug shows where it comes from"
    return driver or CommandError(message, ExitStatus.FAILED, "failed")


def driver_error(error: ImportError) -> CommandError | None:
    # psycopg without libpq raises an ImportError without a name.
    driver = "psycopg" if "no pq wrapper" in str(error) else (error.name or "").partition(".")[0]
    if driver not in _DRIVERS:
        return None
    return usage_error(f"{driver} cannot be used: {one_line(error)}; pip install '{_DRIVERS[driver]}'")


def _database_error(error: DBAPIError, database: str) -> CommandError:
    what = error.orig or error
    if is_unreachable(error):
        return _away(database, what)
    state = sqlstate_of(error)
    if state == _NO_PRIVILEGE:
        kind = needed_kind(error)
        role = f" --role {kind}" if kind else ""
        advice = f"'fairqueue doctor{role}' tells which privileges are missing"
        if kind:
            advice = f"the role needs the grant {kind!r}; {advice}"
        return CommandError(f"{database} refused: {one_line(what)}; {advice}", ExitStatus.REFUSED, "privilege_missing")
    return refused_error(f"{database} refused: {one_line(what)}" + (f" (SQLSTATE {state})" if state else ""))


def _away(database: str, error: BaseException) -> CommandError:
    advice = "check that the server runs and takes this user's connections"
    return CommandError(f"cannot reach {database}: {one_line(error)}; {advice}", ExitStatus.AWAY, "database_away")
