"""Ends the demo early after an error or a signal of the system, such as Ctrl-C. The demo cleans up before it ends.

The signal handler raises an exception. If the signal interrupts a finalizer, Python drops this exception. So the
handler also notes the signal, and ``end_if_asked`` raises the exception again.
"""

from __future__ import annotations

import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_asked: list[int] = []


class DemoError(Exception):
    """The demo cannot go on, results are missing or double, work is left, or fair queue and job table disagree."""


class AskedToEnd(SystemExit):
    """A signal of the system asked the demo to end. The exit status is the one that a shell gives for that signal."""


def listen() -> None:
    """Let signals of the system end the demo, except those that were ignored when it began, as under nohup."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _ask)


def end_if_asked() -> None:
    if _asked:
        raise AskedToEnd(128 + _asked[0])


def _ask(number: int, _frame: object) -> None:
    _asked.append(number)
    end_if_asked()
