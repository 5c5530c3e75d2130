"""Watch over the socket of a connection, which ends calls that nobody answers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.worker.timings import Clock

# The system notices within so many seconds that the other side is gone, also while a call waits for its answer.
_UNANSWERED = 20
_OPTIONS = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, 5),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 5),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 3),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, _UNANSWERED * 1000),
)


class SocketWatch:
    """The socket under a connection, as other threads than the connection's see it.

    A server that is gone without a word, or a proxy that answers for it, leaves a call waiting for ever; a socket that
    is shut down ends the call with an error.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._socket: socket.socket | None = None
        self._since: float | None = None

    def watch(self, driver: Any) -> None:
        """The connection was made."""
        with contextlib.suppress(OSError):
            own = self._socket = socket.socket(fileno=os.dup(driver.fileno()))
            if own.family in {socket.AF_INET, socket.AF_INET6}:
                for name, level, value in _OPTIONS:
                    option = getattr(socket, name, None)  # not every system has all
                    if option is not None:
                        own.setsockopt(level, option, value)

    def forget(self) -> None:
        """The connection was let go."""
        own, self._socket = self._socket, None
        if own is not None:
            own.close()

    @contextlib.contextmanager
    def calling(self, within: float | None) -> Iterator[None]:
        """A call is under way; it is cut if it takes longer than so many seconds."""
        timer = None if within is None else threading.Timer(within, self.cut)
        if timer is not None:
            timer.daemon = True
            timer.start()
        self._since = self._clock()
        try:
            yield
        finally:
            self._since = None
            if timer is not None:
                timer.cancel()
                timer.join()

    def cut(self) -> None:
        """End the call that is under way."""
        own = self._socket
        if own is not None:
            with contextlib.suppress(OSError):
                own.shutdown(socket.SHUT_RDWR)

    def cut_if_stuck(self, seconds: float) -> None:
        """End the call that is under way, with an error for its caller, if it has been for so long."""
        since = self._since
        if since is not None and self._clock() - since > seconds:
            self.cut()
