"""SIGTERM and SIGINT while a worker runs, in the main thread."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator
    from types import FrameType

    _Heard = Callable[[int, FrameType | None], None]
    _Handler = Callable[[int, FrameType | None], object] | int | None

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Our handlers, and what was there before each, by its signal.
_replaced: dict[_Heard, dict[signal.Signals, _Handler]] = {}
_masks = threading.local()


@contextmanager
def on_signal(ask: Callable[[], object]) -> Iterator[None]:
    """The first signal asks for a stop, the second one ends the process. Afterwards all is as it was before.

    So it is in a process that a handler forks: it is no worker, and must end when it is told to.
    """
    asked = False

    def heard(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - its signature
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        ask()

    before = _replaced[heard] = {}
    try:
        for number in _SIGNALS:
            # One that was not set from Python cannot be put back.
            before[number] = signal.signal(number, heard) or signal.SIG_DFL
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _replaced.pop(heard, None)


def _hold() -> None:
    """Before a fork: let signals wait. What a Python handler hears in a child that is just beginning is forgotten."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _replaced else None


def _let_go() -> None:
    if _masks.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _forget() -> None:
    """In a child: what was before our handlers is in its place again."""
    for ours, before in reversed(_replaced.items()):
        for number, handler in before.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, handler)
    _replaced.clear()
    _let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget)


@contextmanager
def waking(loop: AbstractEventLoop) -> Iterator[None]:
    """Let signals wake a loop of this thread that sleeps, whichever thread the system gives them to.

    Not by the loop's own handlers: they wait until whatever blocks the loop has ended, and leave none of the program's.
    """
    ear, mouth = socket.socketpair()
    ear.setblocking(False)
    mouth.setblocking(False)
    ours = mouth.fileno()
    before = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)

    def heard() -> None:
        # What is not ours is for the program's handlers, of which the loop hears by the file that was set before.
        others = bytes(number for number in ear.recv(4096) if number not in _SIGNALS)
        if others and before != -1:
            with suppress(OSError):
                os.write(before, others)

    loop.add_reader(ear, heard)
    try:
        yield
    finally:
        loop.remove_reader(ear)
        now = signal.set_wakeup_fd(before)
        if now != ours:
            # Somebody has set another meanwhile.
            signal.set_wakeup_fd(now)
        ear.close()
        mouth.close()
