"""What becomes of a process that a handler has forked, and that comes back from the handler: it ends."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import TracebackType


class OneProcess:
    """Around the calls of handlers: who comes out of one in another process than the worker's ends there and then.

    It has a copy of the deliveries that the worker holds, and the worker's connections: it must neither go on with
    these nor close those.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def __enter__(self) -> None:
        if os.getpid() != self._process:
            # In a loop, with a handler that was about to begin.
            _end(RuntimeError("a process that was forked in a worker's event loop went on with that loop"))

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        if os.getpid() != self._process:
            _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """End this process as Python would, with the same words and status, but leave alone what is the parent's."""
    code = error.code if isinstance(error, SystemExit) else error
    with suppress(BaseException):
        if code is not None and not isinstance(code, int):
            said = "".join(traceback.format_exception(error)) if code is error else f"{code}\n"
            # Not to the log, nor by sys.stderr: another thread of the parent may have held their locks.
            os.write(2, said.encode(errors="backslashreplace"))
    for stream in sys.stdout, sys.stderr:
        with suppress(BaseException):
            stream.flush()
    os._exit(code & 0xFF if isinstance(code, int) else 0 if code is None else 1)
