"""Errors of commands: a message for people, a kind for programs, and an exit status."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit statuses of commands; programs may rely on the numbers."""

    OK = 0
    FOUND = 1
    """A check found a problem, a report's target is missed, an object is missing or in use, or the user said no."""
    USAGE = 2
    """The command line cannot be used: an unknown option, a bad value, an application that cannot be loaded."""
    AWAY = 3
    """The database cannot be reached, the connection was lost, or no connection in the pool became free."""
    SCHEMA = 4
    """fairqueue is not installed in the schema, or this library cannot use the installed version."""
    REFUSED = 5
    """The database refused: a missing privilege, a timeout, a deadlock."""
    FAILED = 70
    """A bug in fairqueue or in the application; --debug shows where."""
    OUTPUT = 74
    """stdout cannot be written: it is closed, or a file on a full disk."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class CommandError(Exception):
    """The command cannot do what it was asked; the message says what happened and what to do.

    *kind* is a word for programs, and unlike the message does not change. *remedy* is code for a migration, or None.
    """

    def __init__(self, message: str, status: ExitStatus, kind: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.remedy = remedy

    def document(self) -> dict[str, object]:
        return {"kind": self.kind, "message": str(self), "remedy": self.remedy, "status": int(self.status)}


def usage_error(message: str) -> CommandError:
    return CommandError(message, ExitStatus.USAGE, "usage")


def not_found_error(message: str) -> CommandError:
    return CommandError(message, ExitStatus.FOUND, "not_found")


def refused_error(message: str) -> CommandError:
    return CommandError(message, ExitStatus.REFUSED, "refused")


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
