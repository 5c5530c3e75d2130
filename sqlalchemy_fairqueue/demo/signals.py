"""Signals that stop the demo: Ctrl-C and the others run its clean-up first.

Python raises what a signal handler raises wherever it just is, and where that is a finalizer it is lost. So the handler
also leaves a note, which the main loop looks at.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_asked: list[int] = []


class AskedToEndError(BaseException):
    """A signal asked for it. Like KeyboardInterrupt it is no Exception, so that nothing takes it for a failure."""

    @property
    def status(self) -> int:
        """The exit status that a shell gives for the signal."""
        return 128 + _asked[0]


def listen() -> None:
    """Let signals end the demo, except those that the parent process ignores, as nohup does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _ask)


def end_if_asked() -> None:
    """Raise AskedToEndError if a signal came."""
    if _asked:
        raise AskedToEndError


def _ask(number: int, _frame: FrameType | None) -> NoReturn:
    _asked.append(number)
    raise AskedToEndError
