"""SIGTERM and SIGINT while a worker runs, in the main thread."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_signal(ask: Callable[[], object]) -> Iterator[None]:
    """The first signal asks for a stop, the second one ends the process. Afterwards all is as it was before."""
    asked = False

    def heard(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - its signature
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        ask()

    before = {number: signal.signal(number, heard) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
