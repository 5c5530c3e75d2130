"""Blocking work for an event loop, in threads that keep no process from ending and share no pool with anybody."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


async def in_thread(work: Callable[[], Any]) -> Any:
    """Do *work* in a daemon thread: one that never returns must not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    within = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, raised = None, None
        try:
            result = within.run(work)
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was asked for
            # A future takes no StopIteration.
            raised = RuntimeError(f"the handler raised {error!r}") if isinstance(error, StopIteration) else error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=run, name="fairqueue-handler", daemon=True).start()
    return await future
