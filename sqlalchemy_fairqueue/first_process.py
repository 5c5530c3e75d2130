"""Installs a handler of SIGTERM if this process is the command ``fairqueue`` as process 1 of a container.

The kernel delivers a signal to process 1 only if the process has a handler for it. Without one, a SIGTERM during
imports would be lost and its sender would wait in vain. So the package imports this module first.
"""

import os
import signal
import sys
from types import FrameType

_COMMAND = "fairqueue"
_MODULE = "sqlalchemy_fairqueue.cli"


def _obey_signals() -> None:
    is_command = os.path.basename(sys.argv[0] if sys.argv else "") == _COMMAND or _MODULE in sys.orig_argv  # noqa: PTH119 - nothing else is imported yet
    if is_command and os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - its signature
    os._exit(128 + number)


_obey_signals()
