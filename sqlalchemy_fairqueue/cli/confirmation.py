"""Confirmation of what cannot be undone. The question goes to stderr, so that stdout holds the result alone."""

from __future__ import annotations

import sys

from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus, usage_error
from sqlalchemy_fairqueue.texts import clean


def confirm(question: str, *, yes: bool) -> None:
    """Return if the answer is yes.

    Args:
        question: What would be done, with a question mark.
        yes: Whether the command line has answered already.

    Raises:
        CommandError: The answer is no, or stdin is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage_error(f"{question} Nobody is there to answer; give --yes to do it")
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was changed", ExitStatus.FOUND, "declined")
