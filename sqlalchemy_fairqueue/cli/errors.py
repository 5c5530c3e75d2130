"""Errors of commands: a message for people, a kind for programs, and an exit status."""

from __future__ import annotations

from socket import gaierror

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_fairqueue.cli.results import ExitStatus
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from sqlalchemy_fairqueue.errors import FairQueueError, InvalidArgument, SchemaMismatch, StartError, WorkerError

_UNREACHABLE = ("08", "28", "3D000", "53300", "57P01", "57P02", "57P03", "57P05")
"""SQLSTATEs, or their beginnings, of a server that refuses or ends the connection."""

_NO_PRIVILEGE = "42501"

_DRIVERS = {
    "psycopg": "psycopg[binary]",
    "psycopg2": "sqlalchemy-fairqueue[psycopg2]",
    "asyncpg": "sqlalchemy-fairqueue[asyncpg]",
}
"""What to install for a driver that cannot be imported."""

DRIVER_ERRORS = (DBAPIError, ConnectionError, TimeoutError, gaierror)
"""What an engine raises over its database: asyncpg lets the system's own errors pass while it connects."""


class CommandError(Exception):
    """The command cannot do what it was asked.

    Args:
        message: What happened and what to do, in a line.
        status: The exit status.
        kind: A word for programs that stays the same while messages may change.
        remedy: Lines to paste, if there are any.
    """

    def __init__(self, message: str, status: ExitStatus, kind: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.remedy = remedy

    def document(self) -> dict[str, object]:
        """The error as a JSON document."""
        return {
            "kind": self.kind,
            "message": str(self),
            "remedy": self.remedy,
            "status": int(self.status),
        }


def usage_error(message: str) -> CommandError:
    """The command line cannot be used."""
    return CommandError(message, ExitStatus.USAGE, "usage")


def not_found_error(message: str) -> CommandError:
    """A named object does not exist."""
    return CommandError(message, ExitStatus.FOUND, "not_found")


def command_error(error: BaseException, database: str | None = None) -> CommandError:
    """Any exception as the error of a command.

    Args:
        error: What was raised.
        database: The URL of the database without the password, for the message.
    """
    match error:
        case CommandError():
            result = error
        case DBAPIError():
            result = _database_error(error, database or "the database")
        case ConnectionError() | TimeoutError() | gaierror() if database is not None:
            result = _away(database, error)
        case PoolTimeout():
            message = f"no connection to {database or 'the database'} became free: {one_line(error)}"
            result = CommandError(message, ExitStatus.AWAY, "database_away")
        case StartError():
            result = CommandError(str(error), ExitStatus.FAILED, "failed")
        case InvalidArgument() | WorkerError():
            result = usage_error(str(error))
        case SchemaMismatch():
            result = CommandError(str(error), ExitStatus.SCHEMA, "schema_mismatch")
        case ImportError() if (driver := driver_error(error)) is not None:
            result = driver
        case FairQueueError():
            result = CommandError(str(error), ExitStatus.REFUSED, "refused")
        case _:
            message = f"{type(error).__name__}: {one_line(error)}; --debug shows where it comes from"
            result = CommandError(message, ExitStatus.FAILED, "failed")
    return result


def driver_error(error: ImportError) -> CommandError | None:
    """The error of a driver that is not installed, or lacks libpq. None: it is about something else."""
    # psycopg without libpq raises one without a name.
    driver = "psycopg" if "no pq wrapper" in str(error) else (error.name or "").partition(".")[0]
    if driver not in _DRIVERS:
        return None
    return usage_error(f"{driver} cannot be used: {one_line(error)}; pip install '{_DRIVERS[driver]}'")


def _database_error(error: DBAPIError, database: str) -> CommandError:
    state = sqlstate_of(error) or None
    what = one_line(error.orig or error)
    unreachable = (state or "").startswith(_UNREACHABLE) or (state is None and error.statement is None)
    if error.connection_invalidated or unreachable:
        return _away(database, error.orig or error)
    if state == _NO_PRIVILEGE:
        return CommandError(
            f"{database} refused: {what}; 'fairqueue doctor' tells which privileges are missing",
            ExitStatus.REFUSED,
            "privilege_missing",
        )
    return CommandError(f"{database} refused: {what} (SQLSTATE {state})", ExitStatus.REFUSED, "refused")


def _away(database: str, error: BaseException) -> CommandError:
    return CommandError(
        f"cannot reach {database}: {one_line(error)}; check that the server runs and takes this user's connections",
        ExitStatus.AWAY,
        "database_away",
    )


def one_line(error: BaseException) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
