"""Daemon threads: they do not keep the process from ending, whatever they do."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import said

if TYPE_CHECKING:
    from collections.abc import Callable


# Seconds after which a thread that waits for another one wakes up.
_CHECK = 0.1


def join(thread: threading.Thread, left: Callable[[], float]) -> None:
    """Wait for a thread while there are seconds *left*.

    Not in one wait: a signal that the system gave to another thread, or that comes right before this one begins to
    wait, does not end the wait. Its Python handler runs when this thread, if it is the main one, next wakes up.
    """
    while thread.is_alive() and (wait := left()) > 0:
        thread.join(min(wait, _CHECK))


async def in_thread(work: Callable[[], Any]) -> Any:
    """Do *work* in a daemon thread, and wait for it in the running loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def resolve(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, raised = None, None
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was asked for
            # A future takes no StopIteration.
            text = said(error) or type(error).__name__
            raised = RuntimeError(f"the handler raised {text}") if isinstance(error, StopIteration) else error
        # A loop that was closed waits for nothing.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(resolve, result, raised)

    threading.Thread(target=run, name="fairqueue-handler", daemon=True).start()
    return await future
