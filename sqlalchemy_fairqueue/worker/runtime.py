"""Runtime of a worker from its start to its stop: it creates all parts, and starts and stops their threads."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from sqlalchemy_fairqueue.database.installation import check_installed, check_writable, read_version
from sqlalchemy_fairqueue.queue.handlers import follow_dead
from sqlalchemy_fairqueue.texts import logged
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.duties import (
    Groups,
    Housekeeping,
    Round,
    Samples,
    Schedules,
    StopRequests,
    cut_stuck_calls,
)
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.fetcher import Fetcher
from sqlalchemy_fairqueue.worker.handling import RELEASE
from sqlalchemy_fairqueue.worker.leases import Heartbeat, ServedQueue, by_schema
from sqlalchemy_fairqueue.worker.lifespan import Lifespan
from sqlalchemy_fairqueue.worker.settler import Settler
from sqlalchemy_fairqueue.worker.threads import Duty, Looper
from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger, WaitRegistration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.executor import SettleCallback
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.lifespan import Run
    from sqlalchemy_fairqueue.worker.options import WorkerOptions


# A probe gives up after a second or a few; a database that needs longer is not ready.
_ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a worker at the time of the call.

    Attributes:
        alive: False if it cannot recover by itself; restart its process.
        ready: Whether it takes messages now: it is started, its threads run, a handler is free or will be, and the
            database answers within two seconds and takes writes.
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
    """Asks a worker's database whether it answers, on its own connection."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        timings = replace(options.timings, connect=_ANSWER_SECONDS)
        self._connection = DedicatedConnection(replace(options, timings=timings), within=_ANSWER_SECONDS)
        # One question at a time, however many probes come: those that waited for it have its answer.
        self._lock = threading.Lock()
        self._answered_at = -math.inf
        self._answer: str | None = None
        self._is_closed = False

    def check(self, ended_threads: Sequence[str], hung: int) -> Health:
        fatal = [f"its thread {name} has ended" for name in ended_threads]
        if hung >= self._options.concurrency:
            fatal.append(f"all of its {hung} handlers hang")
        unanswered = self._unanswered()
        problems = [*fatal] if unanswered is None else [*fatal, unanswered]
        return Health(alive=not fatal, ready=not problems, problems=tuple(problems))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _unanswered(self) -> str | None:
        came_at = monotonic()
        with self._lock:
            if self._is_closed:
                return "it stops"
            if self._answered_at < came_at:
                self._answer = None
                try:
                    # If it refuses, the connection is closed: the next one may reach the primary.
                    self._connection.run(self._ask)
                except Exception as error:  # noqa: BLE001 - whatever it is, messages cannot be taken
                    self._answer = f"the database does not serve it: {type(error).__name__}: {logged(error)}"
                self._answered_at = monotonic()
            return self._answer

    def _ask(self, connection: Connection) -> None:
        for schema in {queue.schema for queue in self._options.queues}:
            read_version(connection, schema)
        check_writable(connection)


E = TypeVar("E", bound=Executor)


class Runtime(Generic[E]):
    """The parts of one worker.

    Args:
        run: Calls functions that block: the waits of a stop for threads, and plain on_start and on_stop functions.
        stop: Begins the stop of the worker without waiting, when an operator asks for it.
        drain: Whether the worker ends once it is drained; then it runs only slots that are due at its start.
    """

    def __init__(
        self,
        options: WorkerOptions,
        make_executor: Callable[[WorkerOptions, FetchTrigger, SettleCallback], E],
        run: Run,
        stop: Callable[[Runtime[E]], None],
        *,
        drain: bool = False,
    ) -> None:
        self._options = options
        self._clock = options.clock
        self._timings = options.timings
        self._stats = options.stats
        self._run = run
        self.lifespan = Lifespan(options, run)
        self.queues = [ServedQueue(queue, options, self.lifespan.resources_of(queue)) for queue in options.queues]
        self.trigger = FetchTrigger(options.clock)
        settling = DedicatedConnection(options, lock_timeout=options.lock_timeout)
        self.settler = Settler(settling, options, self.trigger.settled)
        self.executor = make_executor(options, self.trigger, self.settler.settle)
        fetching = DedicatedConnection(options)
        self.fetcher = Fetcher(
            connection=fetching,
            options=options,
            queues=self.queues,
            executor=self.executor,
            trigger=self.trigger,
            settler=self.settler,
            waits=WaitRegistration(fetching, options, self.trigger),
            ended=self._end_with_the_loop,
        )
        self._stop_requests = StopRequests(by_schema(self.queues), options, partial(stop, self))
        self._schedules: Schedules | None = None
        self._groups: Groups | None = None
        self._rounds: list[Round] = []
        self._looper = self._make_looper(watched=[fetching, settling], drain=drain)
        self._health = HealthCheck(options)
        # The count of taken messages when nothing was held, and when that was first seen.
        self._idle: tuple[int, float] | None = None
        # The same while groups are to be folded, before queues are polled once more.
        self._unfolded: tuple[int, float] | None = None
        # The count of finished groups at that time.
        self._finished = 0
        self._runs_slots_once = drain
        self._loopers: list[Looper] = [self.fetcher, self.settler, self._looper]

    def check(self) -> None:
        """Check the schemas of the queues and the grants, and tell the database of on_dead handlers."""
        connection = DedicatedConnection(self._options, within=self._timings.connect)
        try:
            for queue in self.queues:
                connection.run(partial(check_installed, schema=queue.target.schema))
                connection.run(partial(follow_dead, queue=queue.queue, target=queue.target))
            self._stop_requests.begin(connection)
        finally:
            connection.close()

    def start(self) -> None:
        """Start the executor and all threads, or none if one cannot be started."""
        try:
            self.executor.start()
            for looper in self._loopers:
                looper.start()
        except BaseException:
            self.executor.begin_stop()
            self.stop_fetching(lambda: 0.0)
            self.stop(self.executor.give_up())
            raise

    def health(self) -> Health:
        ended = [looper.thread.name for looper in self._loopers if not looper.thread.is_alive()]
        return self._health.check(ended, self._stats.hung)

    def is_drained(self) -> bool:
        """Return whether nothing can be delivered now and all taken messages are settled; call it until it is True.

        Slots of schedules that are due at the start run first. Later ones are left, since they could keep a worker for
        ever. Once all messages are settled, groups are folded, and each queue is polled once more for what handlers and
        the fold enqueued. The worker is drained if these polls do not raise the count of taken messages.
        """
        taken, now = self._stats.taken, self._clock()
        slots_due = self._runs_slots_once and self._schedules is not None and not self._schedules.run_once()
        if slots_due or any(queue.held() for queue in self.queues):
            self._idle = self._unfolded = None
            return False
        if self._idle is None or self._idle[0] != taken:
            if self._groups is not None:
                # Messages that were taken after a fold began, and settled before this call, must still be folded.
                if self._unfolded is None or self._unfolded[0] != taken:
                    self._unfolded = taken, now
                if self._groups.folded_at is None or self._groups.folded_at < self._unfolded[1]:
                    self._groups.start()
                    return False
                self._unfolded = None
                self._finished = self._groups.finished
            self._idle = taken, now
            for queue in self.queues:
                queue.polls.poll_now(now)
            self.trigger.set()
            return False
        idle_at = self._idle[1]
        if self._stats.taken != taken or not all(queue.polls.empty_at >= idle_at for queue in self.queues):
            return False
        if self._groups is None or self._groups.end(self._finished):
            return True
        # The follow-up of a group that was finished since then may be there now.
        self._idle = None
        return False

    async def end(self) -> None:
        """Stop as this package's docstring describes. An interrupt or a cancel ends the grace period, not the stop."""
        executor, began = self.executor, self._clock()
        try:
            executor.begin_stop()
            await self._run(partial(self.stop_fetching, executor.grace_left))
            await executor.wait()
        except asyncio.CancelledError:
            pass
        finally:
            given_up, waited = executor.give_up(), self._clock() - began
            with contextlib.suppress(asyncio.CancelledError):
                await executor.clean_up()
            await self._run(partial(self.stop, given_up, waited))

    def stop_fetching(self, left: Callable[[], float]) -> None:
        """Take no further messages, and release buffered ones; these attempts do not count.

        The present dequeue gets the seconds that *left* returns, and at least one.
        """
        until = self._clock() + self._timings.stop_dequeue
        self.fetcher.end(lambda: max(left(), until - self._clock()))
        self.fetcher.give_back()

    def stop(self, given_up: list[HeldDelivery], after: float = 0.0) -> None:
        """Release *given_up*, which handlers did not finish in *after* seconds, settle the rest, and stop threads."""
        if given_up:
            self._options.log.warning(
                "stops with %d handler(s) still at work after %.1f s, and gives back messages %s",
                len(given_up),
                after,
                [held.delivery.message_id for held in given_up][:20],
            )
        self._health.close()
        # A message must not be released while a child process still works on it.
        self.executor.close()
        for held in given_up:
            self.settler.settle(held, RELEASE)
        until = self._clock() + self._timings.stop_part
        self.settler.end(lambda: until - self._clock())
        for part in self._rounds:
            part.stop()
        until = max(until, self._clock() + 0.1)
        self._looper.end(lambda: until - self._clock())

    def _make_looper(self, watched: list[DedicatedConnection], *, drain: bool) -> Looper:
        options, timings, beat = self._options, self._timings, self._options.beat
        # Nobody else cuts calls on this connection, and during a call no lease is extended.
        connection = DedicatedConnection(options, within=max(beat, timings.answer))
        heartbeat = Heartbeat(connection, options, self.queues, self.executor.interrupt)
        cut = partial(cut_stuck_calls, watched, options.stuck_after)
        obey = partial(self._stop_requests.poll, connection)
        check, charge_every, part = min(beat, timings.hear_after), timings.charge_every, (0.5, 1.0)
        duties = [
            Duty("cut stuck calls", cut, check),
            Duty("extend its leases", heartbeat.extend_all, beat, spread=(0.8, 1.0), is_urgent=True),
            Duty("hear signals", heartbeat.hear_all, check),
            Duty("charge for handlers that run", heartbeat.charge_all, charge_every, first=charge_every),
            Duty("look for requests to stop", obey, timings.stop_requests_every, spread=part),
        ]
        if options.housekeeping:
            schedules = self._schedules = Schedules(connection, self.queues, options)
            groups = self._groups = Groups(connection, self.queues, options)
            samples, housekeeping = Samples(self.queues, options), Housekeeping(options)
            self._rounds = [schedules, groups, samples, housekeeping]
            if not drain:
                duties.append(Duty("poll its schedules", schedules.poll, timings.schedules_every, spread=part))
            every, first = timings.housekeeping_every, timings.housekeeping_first
            duties += [
                Duty("poll its groups", groups.poll, timings.groups_every, spread=part),
                Duty("start its samples", samples.start, timings.samples_every, first=timings.samples_every),
                Duty("start its housekeeping", housekeeping.start, every, spread=(0.5, 1.5), first=first),
            ]
        # A failed duty must be tried a few times before a lease ends.
        cap = max(options.lease.total_seconds() / 10, 0.05)
        return Looper("heartbeat", duties, options, cap=cap, last=heartbeat.end)

    def _end_with_the_loop(self) -> None:
        if self.executor.is_closed():
            self._options.log.error("gives back what it had and ends: its event loop was closed; call stop() first")
            self.stop(self.executor.give_up())
