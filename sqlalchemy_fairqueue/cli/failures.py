"""What goes wrong, as a message for people, a kind for programs, and an exit status."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqlalchemy_fairqueue.cli.statuses import Status
from sqlalchemy_fairqueue.errors import FairQueueError, InvalidArgument, SchemaMismatch, WorkerError

_AWAY = ("08", "28", "3D000", "53300", "57P01", "57P02", "57P03", "57P05")
"""SQLSTATEs, or their beginnings, of a server that gives or keeps no connection."""

_NO_PRIVILEGE = "42501"


class Failure(Exception):
    """The command cannot do what it was asked.

    Args:
        message: What happened and what to do, in a line.
        status: The exit status.
        kind: A word for programs that stays the same while messages may change.
        remedy: Lines to paste, if there are any.
    """

    def __init__(self, message: str, status: Status, kind: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.remedy = remedy


def usage(message: str) -> Failure:
    """The failure of a command line that cannot be used."""
    return Failure(message, Status.USAGE, "usage")


def not_found(message: str) -> Failure:
    """The failure to find what was named."""
    return Failure(message, Status.FOUND, "not_found")


def failure_of(error: BaseException, database: str | None = None) -> Failure:
    """The failure that an error stands for.

    Args:
        error: What was raised.
        database: Which database was meant, without the password.
    """
    match error:
        case Failure():
            failure = error
        case DBAPIError():
            failure = _refused(error, database or "the database")
        case PoolTimeout():
            words = f"no connection to {database or 'the database'} became free: {said(error)}"
            failure = Failure(words, Status.AWAY, "database_away")
        case InvalidArgument() | WorkerError():
            failure = usage(str(error))
        case SchemaMismatch():
            failure = Failure(str(error), Status.SCHEMA, "schema_mismatch")
        case FairQueueError():
            failure = Failure(str(error), Status.REFUSED, "refused")
        case _:
            words = f"{type(error).__name__}: {said(error)}; --debug shows where it comes from"
            failure = Failure(words, Status.FAILED, "failed")
    return failure


def _refused(error: DBAPIError, database: str) -> Failure:
    state = getattr(error.orig, "sqlstate", None)
    what = said(error.orig or error)
    if error.connection_invalidated or (state or "").startswith(_AWAY) or (state is None and error.statement is None):
        return Failure(
            f"cannot reach {database}: {what}; check that the server runs and takes this user's connections",
            Status.AWAY,
            "database_away",
        )
    if state == _NO_PRIVILEGE:
        return Failure(
            f"{database} refused: {what}; 'fairqueue doctor' tells which privileges are missing",
            Status.REFUSED,
            "privilege_missing",
        )
    return Failure(f"{database} refused: {what} (SQLSTATE {state})", Status.REFUSED, "refused")


def said(error: BaseException) -> str:
    """The words of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
