"""Ask before what cannot be undone. The question goes to stderr, so that stdout stays what it promises to be."""

from __future__ import annotations

import sys

from sqlalchemy_fairqueue.cli.failures import Failure, usage
from sqlalchemy_fairqueue.cli.statuses import Status
from sqlalchemy_fairqueue.errors import clean


def ask(question: str, *, yes: bool) -> None:
    """Return if the answer is yes.

    Args:
        question: What would be done, with a question mark.
        yes: Whether the command line has answered already.

    Raises:
        Failure: It is no, or there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage(f"{question} Nobody is there to answer; give --yes to do it")
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Failure("nothing was changed", Status.FOUND, "declined")
