"""How a command ends, as the number that its process exits with. docs/cli.md lists them; they never change."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses."""

    OK = 0
    FOUND = 1
    """doctor found a problem; what was named is not there; the question was answered with no."""
    USAGE = 2
    """The command line cannot be used: an unknown option, a bad value, an application that cannot be loaded."""
    AWAY = 3
    """The database cannot be reached, or was lost on the way."""
    SCHEMA = 4
    """fairqueue is not installed where it was looked for, or in a version that this library cannot use."""
    REFUSED = 5
    """The database refused: a missing privilege, a timeout, a deadlock."""
    FAILED = 70
    """A mistake in fairqueue or in the application; --debug shows where."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """Whoever read the output has gone."""
