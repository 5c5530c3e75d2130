"""SIGTERM and SIGINT while a worker runs, in the main thread."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager
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
    if before != -1:
        # The loop has handlers of the program's, and wakes up already.
        signal.set_wakeup_fd(before)
    loop.add_reader(ear, ear.recv, 4096)
    try:
        yield
    finally:
        loop.remove_reader(ear)
        # Somebody may have set another meanwhile.
        now = signal.set_wakeup_fd(-1)
        if now not in {-1, ours}:
            signal.set_wakeup_fd(now)
        ear.close()
        mouth.close()
