"""Lifespan of a worker: it calls the on_start and on_stop functions of its queues, in order.

A generator is recorded before it begins, so that it closes what it has opened even if its start is interrupted.
"""

from __future__ import annotations

import contextlib
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import StartError, WorkerError
from sqlalchemy_fairqueue.queue.handlers import lifespan_of
from sqlalchemy_fairqueue.texts import logged, said, traced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.handlers import LifespanFunction
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

    Run = Callable[[Callable[[], Any]], Awaitable[Any]]

_END = object()


async def here(work: Callable[[], Any]) -> Any:
    """Call *work* in this thread, as a worker with threads calls plain functions."""
    return work()


class Lifespan:
    """The on_start and on_stop functions of one start of a worker, and the resources; *run* calls plain functions."""

    def __init__(self, options: WorkerOptions, run: Run = here) -> None:
        self._run = run
        self._log = options.log
        self._queues = options.queues
        self._resources: dict[int, dict[str, Any]] = {id(queue): {} for queue in options.queues}
        # By function, since queues may share one.
        self._started: dict[Callable[..., Any], Any] = {}
        # The generators to continue, and the functions to call, at the stop.
        self._open = contextlib.AsyncExitStack()
        self._stops = contextlib.AsyncExitStack()
        self._stopping: set[Callable[..., Any]] = set()

    def resources_of(self, queue: Queue) -> Mapping[str, Any]:
        """Return the resources of a queue by name. The start fills them."""
        return self._resources[id(queue)]

    async def start(self) -> None:
        """Call the on_start functions. If one fails, stop the functions before it and raise StartError."""
        try:
            for queue in self._queues:
                starts, stops = lifespan_of(queue)
                for one in starts:
                    if one.function not in self._started:
                        self._started[one.function] = await self._begin(queue, one)
                    self._resources[id(queue)][one.name] = self._started[one.function]
                # From now on the on_stop functions of this queue must run at the stop.
                for one in stops:
                    if one.function not in self._stopping:
                        self._stopping.add(one.function)
                        self._stops.push_async_callback(self._finish, queue, one)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Call on_stop functions, then finish on_start generators, in reverse order. Call it in the task of start."""
        await self._stops.aclose()
        await self._open.aclose()

    async def _finish(self, queue: Queue, one: LifespanFunction) -> None:
        with self._logging(queue, one, "on_stop"):
            await self._call(queue, one)

    async def _close(self, queue: Queue, one: LifespanFunction, generator: Any) -> None:
        # An interrupted start may not have begun the generator.
        if not one.asynchronous and inspect.getgeneratorstate(generator) == inspect.GEN_CREATED:
            return
        with self._logging(queue, one, "on_start"):
            try:
                if await self._next(one, generator) is not _END:
                    raise WorkerError("it yielded a second time, and what follows did not run; yield once")
            finally:
                if one.asynchronous:
                    await generator.aclose()
                else:
                    generator.close()

    async def _begin(self, queue: Queue, one: LifespanFunction) -> Any:
        try:
            made = await self._call(queue, one)
            if one.generator:
                self._open.push_async_callback(self._close, queue, one, made)
                made = await self._next(one, made)
                if made is _END:
                    raise WorkerError("it did not yield; yield the resource once")  # noqa: TRY301 - as if it raised that
        except Exception as error:
            self._tell(f"on_start function {one.name!r} of queue {queue.name!r} failed", error)
            raise StartError(queue.name, one.name, f"{type(error).__name__}: {said(error)}") from error
        return made

    async def _call(self, queue: Queue, one: LifespanFunction) -> Any:
        resources = self._resources[id(queue)]
        call = partial(one.function, **{parameter: resources[name] for parameter, name in one.takes.items()})
        if one.generator:
            return call()
        return await (call() if one.asynchronous else self._run(call))

    async def _next(self, one: LifespanFunction, generator: Any) -> Any:
        return await (anext(generator, _END) if one.asynchronous else self._run(partial(next, generator, _END)))

    @contextlib.contextmanager
    def _logging(self, queue: Queue, one: LifespanFunction, verb: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - the others are to be stopped, too
            self._tell(f"{verb} function {one.name!r} of queue {queue.name!r} failed at the stop", error)

    def _tell(self, what: str, error: BaseException) -> None:
        self._log.error(": %s: %s: %s", what, type(error).__name__, logged(error), exc_info=traced(error))


def at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits, without an event loop."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
        raise AssertionError("it waits")
