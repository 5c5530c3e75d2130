"""Starts and stops a worker: calls ``on_start`` and ``on_stop``, runs its parts and their threads, tells its health."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.installation import check_installed, check_writable, read_version
from sqlalchemy_fairqueue.errors import StartError, WorkerError
from sqlalchemy_fairqueue.queue.handlers import LifespanFunction, follow_dead, lifespan_of
from sqlalchemy_fairqueue.texts import logged, said, traced
from sqlalchemy_fairqueue.worker import duties
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.fetcher import Fetcher
from sqlalchemy_fairqueue.worker.leases import RELEASE, HeldDelivery, ServedQueue
from sqlalchemy_fairqueue.worker.settler import Settler
from sqlalchemy_fairqueue.worker.threads import Duty, Looper, join
from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.worker.executor import Executor
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

    Run = Callable[[Callable[[], Any]], Awaitable[Any]]


# Seconds in which the database must answer for a probe; if it needs longer, the worker is not ready. They are few,
# since most callers of a probe give up after one or a few seconds.
_ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a worker at the time of the call.

    Attributes:
        alive: False if the worker cannot recover by itself; then restart its process.
        ready: Whether it takes messages now: it is started, its threads run, not all of its handlers hang, and the
            database answers and takes writes. If the connection, its setup or the answer takes more than two seconds,
            the worker is not ready.
        problems: Why it is not alive or not ready.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> None: ...
        >>> with Worker(engine, queue, concurrency=1) as worker:
        ...     print(worker.health())
        Health(alive=True, ready=True, problems=())
    """

    alive: bool
    ready: bool
    problems: tuple[str, ...]


class HealthCheck:
    """Asks a worker's database, on its own connection, whether it can serve the worker."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        timings = replace(options.timings, connect=_ANSWER_SECONDS)
        self._connection = DedicatedConnection(replace(options, timings=timings), within=_ANSWER_SECONDS)
        # One question at a time, however many probes come: probes that waited for the question take its answer. The
        # program's signal handler may call stop(), and so close(), in the thread that asks.
        self._lock = threading.RLock()
        self._closed = False
        self._answered_at = -math.inf
        self._problems: list[str] = []

    def close(self) -> None:
        self._closed = True
        with self._lock:
            self._connection.close()

    def unanswered(self) -> list[str]:
        """Return why the database does not serve the worker; an empty list if it does."""
        came_at = monotonic()
        if isinstance(self._options.engine, AsyncEngine):
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                raise WorkerError("health() would block the event loop; await asyncio.to_thread(worker.health)")
        with self._lock:
            if self._answered_at < came_at:
                self._problems = []
                try:
                    # If the server refuses, the connection is closed, since the next one may reach the primary.
                    self._connection.run(self._ask)
                except Exception as error:  # noqa: BLE001 - whatever it is, messages cannot be taken
                    self._problems = [f"the database does not serve it: {type(error).__name__}: {logged(error)}"]
                self._answered_at = monotonic()
                if self._closed:
                    self._connection.close()
            return self._problems

    def _ask(self, connection: Connection) -> None:
        for schema in {queue.schema for queue in self._options.queues}:
            read_version(connection, schema)
        check_writable(connection)


_END = object()


class Lifespan:
    """The on_start and on_stop functions of a worker, and their resources. *run* calls functions that are not async."""

    def __init__(self, options: WorkerOptions, run: Run) -> None:
        self._run = run
        self._options = options
        self.resources: dict[int, dict[str, Any]] = {id(queue): {} for queue in options.queues}
        # The resource of each on_start function. Queues may share a function; it is then called once.
        self._started: dict[Callable[..., Any], Any] = {}
        # The stop calls the on_stop functions in _stops, and then continues the generators in _open.
        self._open = contextlib.AsyncExitStack()
        self._stops = contextlib.AsyncExitStack()
        self._stopping: set[Callable[..., Any]] = set()

    async def start(self) -> None:
        """Call the on_start functions. If one fails, raise StartError; the caller must then call :meth:`stop`."""
        for queue in self._options.queues:
            starts, stops = lifespan_of(queue)
            for one in starts:
                if one.function not in self._started:
                    self._started[one.function] = await self._begin(queue, one)
                self.resources[id(queue)][one.name] = self._started[one.function]
            # The queue has started, so its on_stop functions must run at the stop.
            for one in stops:
                if one.function not in self._stopping:
                    self._stopping.add(one.function)
                    self._stops.push_async_callback(self._finish, queue, one)

    async def stop(self) -> None:
        """Call on_stop functions and end on_start generators. The task that awaited :meth:`start` must await this."""
        await self._stops.aclose()
        await self._open.aclose()

    async def _finish(self, queue: Queue, one: LifespanFunction) -> None:
        with self._logging(queue, one, "on_stop"):
            await self._call(queue, one)

    async def _begin(self, queue: Queue, one: LifespanFunction) -> Any:
        try:
            return await self._call(queue, one)
        except Exception as error:
            self._tell(f"on_start function {one.name!r} of queue {queue.name!r} failed", error)
            raise StartError(queue.name, one.name, f"{type(error).__name__}: {said(error)}") from error

    async def _go_on(self, queue: Queue, one: LifespanFunction, generator: Any) -> None:
        """Run what follows the ``yield`` of an on_start function."""
        with self._logging(queue, one, "on_start"):
            try:
                if await self._next(one, generator) is not _END:
                    raise WorkerError("it yielded a second time, and what follows did not run; yield once")
            finally:
                await (generator.aclose() if one.asynchronous else self._run(generator.close))

    async def _call(self, queue: Queue, one: LifespanFunction) -> Any:
        resources = self.resources[id(queue)]
        call = partial(one.function, **{parameter: resources[name] for parameter, name in one.takes.items()})
        if not one.generator:
            return await (call() if one.asynchronous else self._run(call))
        generator = call()
        # Recorded before it begins, so that the stop closes it even if its start is interrupted.
        self._open.push_async_callback(self._go_on, queue, one, generator)
        made = await self._next(one, generator)
        if made is _END:
            raise WorkerError("it did not yield; yield the resource once")
        return made

    async def _next(self, one: LifespanFunction, generator: Any) -> Any:
        return await (anext(generator, _END) if one.asynchronous else self._run(partial(next, generator, _END)))

    @contextlib.contextmanager
    def _logging(self, queue: Queue, one: LifespanFunction, verb: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - the others are to be stopped, too
            self._tell(f"{verb} function {one.name!r} of queue {queue.name!r} failed at the stop", error)

    def _tell(self, what: str, error: BaseException) -> None:
        self._options.log.error(": %s: %s: %s", what, type(error).__name__, logged(error), exc_info=traced(error))


def at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits, without an event loop."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
        raise AssertionError("it waits")


class Runtime:
    """A worker's parts. If an operator wants a stop, the heartbeat calls the argument *stop*, which must not block."""

    def __init__(self, options: WorkerOptions, executor: type[Executor], stop: Callable[[Runtime], None]) -> None:
        self._options = options
        self.trigger = FetchTrigger(options.clock)
        self.settler = Settler(options, self.trigger.settled)
        self.executor = executor(options, self.trigger, self.settler.settle)
        self.lifespan = Lifespan(options, self.executor.run)
        self.queues = [ServedQueue(queue, options, self.lifespan.resources[id(queue)]) for queue in options.queues]
        self.fetcher = Fetcher(options, self.queues, self.executor, self.settler, ended=self._end_with_the_loop)
        self._stop_requests = duties.StopRequests(duties.by_schema(self.queues), options, partial(stop, self))
        self._schedules: duties.Schedules | None = None
        self._groups: duties.Groups | None = None
        self._rounds: list[duties.Round] = []
        self._looper = self._make_looper()
        self._health = HealthCheck(options)
        self._draining = self._drain()
        self._loopers: list[Looper] = [self.fetcher, self.settler, self._looper]

    def check(self) -> None:
        own = DedicatedConnection(self._options, within=self._options.timings.connect)
        with contextlib.closing(own) as connection:
            for queue in self.queues:
                connection.run(partial(check_installed, schema=queue.target.schema))
                connection.run(partial(follow_dead, queue=queue.queue, target=queue.target))
            self._stop_requests.begin(connection)

    def start(self) -> None:
        try:
            self.executor.start()
            for looper in self._loopers:
                looper.start()
        except BaseException:
            self.executor.begin_stop()
            self.executor.shorten_grace(0.0)
            self.stop_fetching()
            self.stop(self.executor.give_up())
            raise

    def health(self) -> Health:
        fatal = [f"its thread {one.thread.name} has ended" for one in self._loopers if not one.thread.is_alive()]
        if (hung := self._options.stats.hung) >= self._options.concurrency:
            fatal.append(f"all of its {hung} handlers hang")
        problems = fatal + self._health.unanswered()
        return Health(alive=not fatal, ready=not problems, problems=tuple(problems))

    def is_drained(self) -> bool:
        """Return whether nothing can be delivered now and all taken messages are settled; call it until it is True."""
        return next(self._draining, True)

    def _drain(self) -> Iterator[bool]:
        """Yield False while the worker is not drained, and then end.

        First run slots that are due at the start; slots that become due later could keep the worker for ever. When all
        messages are settled, fold groups, and poll each queue once more, since handlers and the fold may have enqueued
        messages. The worker is drained if these polls take no message and no group was finished.
        """
        schedules, groups, stats = self._schedules, self._groups, self._options.stats
        while self._options.drain and schedules is not None and not schedules.run_once():
            yield False
        finished = 0
        while True:
            taken = stats.taken
            while any(queue.held() for queue in self.queues):
                yield False
                taken = stats.taken
            since = self._options.clock()
            if groups is not None:
                # A fold may miss what was settled after it began, so another one follows.
                while stats.taken == taken and (groups.folded_at is None or groups.folded_at < since):
                    groups.start()
                    yield False
                finished, since = groups.finished, self._options.clock()
            for queue in self.queues:
                queue.polls.poll_now(since)
            self.trigger.set()
            while stats.taken == taken and not all(queue.polls.empty_at >= since for queue in self.queues):
                yield False
            # If a group was finished meanwhile, its follow-up may be there now.
            if stats.taken == taken and (groups is None or groups.end(finished)):
                return

    async def end(self) -> None:
        """Stop as this package's docstring describes. An interrupt or a cancel ends the grace period, not the stop."""
        executor, began = self.executor, self._options.clock()
        try:
            executor.begin_stop()
            await self.executor.run(self.stop_fetching)
            await executor.wait()
        except asyncio.CancelledError:
            pass
        finally:
            given_up, waited = executor.give_up(), self._options.clock() - began
            with contextlib.suppress(asyncio.CancelledError):
                await executor.clean_up()
            await self.executor.run(partial(self.stop, given_up, waited))

    def stop_fetching(self) -> None:
        self.fetcher.stop()
        # The present dequeue gets the grace period, and at least one second.
        until = self._options.clock() + self._options.timings.stop_dequeue
        join(self.fetcher.thread, lambda: max(self.executor.grace_left(), until - self._options.clock()))
        self.fetcher.give_back()

    def stop(self, given_up: list[HeldDelivery], after: float = 0.0) -> None:
        """Release *given_up*, settle the rest, and stop threads. The log shows *after*, the seconds handlers had."""
        if given_up:
            self._options.log.warning(
                "stops with %d handler(s) still at work after %.1f s, and gives back messages %s",
                *(len(given_up), after, [held.delivery.message_id for held in given_up][:20]),
            )
        self._health.close()
        # A message must not be released while a child process still works on it.
        self.executor.close()
        for held in given_up:
            self.settler.settle(held, RELEASE)
        self.settler.end(self._options.timings.stop_settling, self.settler.connection)
        for part in self._rounds:
            part.stop()
        self._looper.end(self._options.timings.end_leases, self._connection)

    def _make_looper(self) -> Looper:
        options, timings, beat = self._options, self._options.timings, self._options.beat
        # A limit of its own, since nobody else cuts calls on this connection, and during a call no lease is extended.
        connection = self._connection = DedicatedConnection(options, within=max(beat, timings.answer))
        heartbeat = duties.Heartbeat(connection, options, self.queues, self.executor.interrupt)
        obey = partial(self._stop_requests.poll, connection)
        check, charge_every, part = min(beat, timings.hear_after), timings.charge_every, (0.5, 1.0)
        listed = [
            Duty("cut stuck dequeues", partial(self.fetcher.connection.cut_if_stuck, options.stuck_after), check),
            Duty("cut stuck settlements", partial(self.settler.connection.cut_if_stuck, options.stuck_after), check),
            Duty("extend its leases", heartbeat.extend_all, beat, spread=(0.8, 1.0), is_urgent=True),
            Duty("hear signals", heartbeat.hear_all, check),
            Duty("charge for handlers that run", heartbeat.charge_all, charge_every, first=charge_every),
            Duty("look for requests to stop", obey, timings.stop_requests_every, spread=part),
        ]
        if options.housekeeping:
            schedules = self._schedules = duties.Schedules(connection, self.queues, options)
            groups = self._groups = duties.Groups(connection, self.queues, options)
            samples, housekeeping = duties.Samples(self.queues, options), duties.Housekeeping(options)
            self._rounds = [schedules, groups, samples, housekeeping]
            if not options.drain:
                listed.append(Duty("poll its schedules", schedules.poll, timings.schedules_every, spread=part))
            every, first = timings.housekeeping_every, timings.housekeeping_first
            listed += [
                Duty("poll its groups", groups.poll, timings.groups_every, spread=part),
                Duty("start its samples", samples.start, timings.samples_every, first=timings.samples_every),
                Duty("start its housekeeping", housekeeping.start, every, spread=(0.5, 1.5), first=first),
            ]
        # A failed duty must be tried a few times before a lease ends.
        cap = max(options.lease.total_seconds() / 10, 0.05)
        return Looper("heartbeat", listed, options, cap=cap, last=heartbeat.end)

    def _end_with_the_loop(self) -> None:
        if self.executor.is_closed():
            self._options.log.error("gives back what it had and ends: its event loop was closed; call stop() first")
            self.stop(self.executor.give_up())
