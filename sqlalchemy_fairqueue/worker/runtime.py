"""What runs under every worker: four threads, none of which waits for another to do its work.

The fetcher takes, the settler ends, the heartbeat keeps leases alive, each on a connection of its own; a listener that
all workers of the process share hears notifications. The crew, threads or tasks of an event loop, calls the handlers.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy_fairqueue.installation import check_installed
from sqlalchemy_fairqueue.values import check_duration
from sqlalchemy_fairqueue.worker.connection import line
from sqlalchemy_fairqueue.worker.daemon_threads import join
from sqlalchemy_fairqueue.worker.decisions import RELEASE
from sqlalchemy_fairqueue.worker.fetcher import Crew, Fetcher
from sqlalchemy_fairqueue.worker.heartbeat import Heartbeat
from sqlalchemy_fairqueue.worker.housekeeping import Housekeeping
from sqlalchemy_fairqueue.worker.logs import log
from sqlalchemy_fairqueue.worker.notifications import Subscription, subscribe
from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
from sqlalchemy_fairqueue.worker.settlement_writer import LOCK_TIMEOUT
from sqlalchemy_fairqueue.worker.settler import Settler
from sqlalchemy_fairqueue.worker.waits import WaitRegistration

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.prefetch import Prefetch
    from sqlalchemy_fairqueue.worker.stats import WorkerStats

DRAIN_LOOK = 0.01
"""Seconds between two questions whether a machine is drained."""

# How long a part may take to end, after what it was doing: a database that does not answer must not keep a process.
_ENDING = 15.0
# Seconds that a dequeue under way has in any case when the worker stops.
_TAKING = 1.0


class Manned(Crew, Protocol):
    """A crew as the machine knows it."""

    fetcher: Fetcher
    settler: Settler

    def launch(self) -> None:
        """Be ready to call handlers."""
        ...

    def tell(self, contexts: list[Context]) -> None:
        """These deliveries are lost or cancelled: their handlers should stop."""
        ...

    def end(self) -> None:
        """Begin no more."""
        ...

    def give_up(self) -> list[Context]:
        """Leave behind what is still worked on; the deliveries, which are somebody else's now."""
        ...


class Runtime:
    """The parts of one worker from its start to its stop."""

    def __init__(self, settings: WorkerOptions, crew: Manned, pace: Prefetch, stats: WorkerStats) -> None:
        self._settings = settings
        self._engine = settings.engine
        self._stats = stats
        self._crew = crew
        name = settings.name
        self.sources = [ServedQueue(queue, name, settings.ask, settings.alone_interval) for queue in settings.queues]
        taking, settling = line(self._engine), line(self._engine, LOCK_TIMEOUT if settings.notify else None)
        self.settler = Settler(settling, name, stats, self._settled)
        listen: Callable[[Any], Subscription] | None = self._subscribe if settings.notify else None
        self.fetcher = Fetcher(
            line=taking,
            sources=self.sources,
            ask=settings.ask,
            crew=crew,
            pace=pace,
            settler=self.settler,
            sleeper=WaitRegistration(listen, settings.woken_interval, settings.alone_interval),
            stats=stats,
            name=name,
        )
        chores = None
        if settings.housekeeping:
            chores = Housekeeping(self._engine, (queue.schema for queue in settings.queues), name)
        self.heartbeat = Heartbeat(
            line=line(self._engine),
            watched=(taking, settling),
            sources=self.sources,
            lease=settings.lease,
            tell=crew.tell,
            housekeeping=chores,
            stats=stats,
            name=name,
        )
        crew.fetcher, crew.settler = self.fetcher, self.settler
        # How many had been taken when nothing was held, and when that was first seen.
        self._idle: tuple[int, float] | None = None
        self._threads: dict[object, threading.Thread] = {
            part: threading.Thread(target=run, name=f"{name}-{word}", daemon=True)
            for part, run, word in (
                (self.fetcher, self._fetch, "fetch"),
                (self.settler, self.settler.run, "settle"),
                (self.heartbeat, self.heartbeat.run, "heartbeat"),
            )
        }

    def check(self) -> None:
        """Look at the schemas before anything is taken.

        Raises:
            SchemaMismatch: One is missing or too old.
        """
        own = line(self._engine)
        try:
            for source in self.sources:
                own.run(
                    lambda connection, schema=source.target.schema: check_installed(connection, schema)  # type: ignore[misc]
                )
        finally:
            own.close()

    def launch(self) -> None:
        """Start the crew and the parts: all of them or, where a thread is not to be had, none."""
        try:
            self._crew.launch()
            for thread in self._threads.values():
                thread.start()
        except BaseException:
            self._crew.end()
            self.stop_taking(lambda: 0.0)
            self.stop(self._crew.give_up())
            raise

    def is_drained(self) -> bool:
        """Whether nothing can be delivered now, and nothing that was taken is left; to be asked again and again.

        Once all is settled, each queue is looked at once more: handlers may have enqueued. Nothing was taken since then
        if the count of what was is the same: it rises when what was taken is held, and before the next look.
        """
        taken, now = self._stats.taken, monotonic()
        if any(source.claims.held() for source in self.sources):
            self._idle = None
            return False
        if self._idle is None or self._idle[0] != taken:
            self._idle = taken, now
            for source in self.sources:
                source.looks.nudge(now)
            self.fetcher.ring()
            return False
        idle_at = self._idle[1]
        return all(source.looks.empty_at >= idle_at for source in self.sources) and self._stats.taken == taken

    def stop_taking(self, left: Callable[[], float]) -> None:
        """Take no more, and give back uncounted what nobody works on.

        Args:
            left: For how many seconds a dequeue that is under way may still be waited for; a second in any case.
        """
        self.fetcher.stop()
        until = monotonic() + _TAKING
        join(self._threads[self.fetcher], lambda: max(left(), until - monotonic()))
        self.fetcher.give_back()

    def stop(self, left: list[Context], after: float = 0.0) -> None:
        """Give back what handlers did not end *after* so many seconds, settle all, and end the parts."""
        if left:
            log.warning(
                "worker %s stops with %d handler(s) still at work after %.1f s, and gives back messages %s",
                self._settings.name,
                len(left),
                after,
                [context.delivery.message_id for context in left][:20],
                extra={"worker": self._settings.name},
            )
        for context in left:
            self.settler.end(context, RELEASE)
        self.settler.stop()
        until = monotonic() + _ENDING
        join(self._threads[self.settler], lambda: until - monotonic())
        self.heartbeat.stop()
        until = max(until, monotonic() + 0.1)
        join(self._threads[self.heartbeat], lambda: until - monotonic())

    def _fetch(self) -> None:
        self.fetcher.run()
        if self._crew.gone():
            log.error(
                "worker %s gives back what it had and ends: its event loop was closed; call stop() first",
                self._settings.name,
                extra={"worker": self._settings.name},
            )
            self.stop(self._crew.give_up())

    def _settled(self, sources: set[ServedQueue]) -> None:
        self.fetcher.settled(sources)

    def _subscribe(self, driver: Any) -> Subscription:
        return subscribe(self._engine, driver, self._wake)

    def _wake(self, named: list[ServedQueue], others: list[ServedQueue]) -> None:
        self._stats.woken += 1
        self.fetcher.woken(named, others)


def seconds(duration: timedelta | None, default: timedelta) -> float:
    """A duration that may be left out, in seconds.

    Raises:
        InvalidArgument: It is none.
    """
    if duration is None:
        return default.total_seconds()
    check_duration("grace", duration)
    return duration.total_seconds()
