"""stdout as a command needs it: whole writes, no character that it fails on, and quiet when its reader has gone."""

from __future__ import annotations

import os
import sys


def prepare_stdout() -> None:
    """Make stdout write everything or fail, also under PYTHONUNBUFFERED, and escape what the locale has no words for.

    Unbuffered, Python drops the rest of a write that was done in part, as when the reader of a pipe goes away in it.
    """
    sys.stdout = open(  # noqa: SIM115 - it stays open as long as the process; a descriptor has no path
        sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, errors="backslashreplace", closefd=False
    )


def forget_stdout() -> None:
    """Let what is left to be written go nowhere: Python flushes once more when it ends, and would complain."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
