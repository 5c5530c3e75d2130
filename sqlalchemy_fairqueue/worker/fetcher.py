"""Takes messages: one thread dequeues what handlers can start soon, from all queues of the worker in turn.

Whatever happens to a call, the messages that it may have taken come back when their lease ends: after an error a new
lease is used, so that the heartbeat does not keep alive what nobody knows of.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.context import Context
from sqlalchemy_fairqueue.worker.decisions import RELEASE
from sqlalchemy_fairqueue.worker.logs import log
from sqlalchemy_fairqueue.worker.prefetch import STALE, Prefetch, shares
from sqlalchemy_fairqueue.worker.wake_event import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from sqlalchemy_fairqueue.values import Batch
    from sqlalchemy_fairqueue.worker.buffer import Buffer
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.settler import Settler
    from sqlalchemy_fairqueue.worker.stats import WorkerStats
    from sqlalchemy_fairqueue.worker.waits import WaitRegistration

# More unsettled deliveries than this: the database is slower than the handlers, and takes no more of them.
_UNSETTLED = 2000
# Seconds after which it sees that its crew is gone, at the latest.
_LONGEST = 30.0


class Crew(Protocol):
    """Those who call the handlers.

    Attributes:
        buffer: Deliveries that nobody works on yet.
    """

    buffer: Buffer

    def free(self) -> int:
        """How many could start at once."""
        ...

    def gone(self) -> bool:
        """Whether nobody can call a handler any more, though the worker was not stopped."""
        ...

    def busy(self, now: float) -> float:
        """For how many seconds nobody has been free; zero if somebody is."""
        ...

    def start(self) -> None:
        """There is work in the buffer."""
        ...


class Fetcher:
    """The taking part of a worker.

    Args:
        line: Its connection.
        sources: The queues.
        ask: How long a lease must be good for at least.
        crew: Who gets the messages.
        pace: How many may be held.
        settler: Gives back what cannot be started.
        sleeper: Says and hears about sleep.
        stats: Counted here: dequeues and what they gave.
        name: The worker's name, for the log.
    """

    def __init__(
        self,
        *,
        line: DedicatedConnection,
        sources: Sequence[ServedQueue],
        ask: timedelta,
        crew: Crew,
        pace: Prefetch,
        settler: Settler,
        sleeper: WaitRegistration,
        stats: WorkerStats,
        name: str,
    ) -> None:
        # How short the buffer must be for a ring to be worth it.
        self.hungry_at = -1
        # Whether it waits for deliveries to be settled.
        self._choked = False
        self._line = line
        self._sources = list(sources)
        self._ask = ask
        self._crew = crew
        self._pace = pace
        self._settler = settler
        self._sleeper = sleeper
        self._stats = stats
        self._bell = WakeEvent()
        self._outage = Backoff(log, "go its rounds", name)
        self._stopping = False

    def ring(self) -> None:
        """Something changed: a slot is free, a queue may have work. Any thread may call it."""
        self._bell.ring()

    def settled(self, sources: Iterable[ServedQueue]) -> None:
        """Deliveries were settled, which made room in these queues. If it was about to look, it sleeps on."""
        now = monotonic()
        earlier = [source.looks.nudge(now) for source in sources]
        if any(earlier) or self._choked:
            self._bell.ring()

    def woken(self, named: Iterable[ServedQueue], others: Iterable[ServedQueue]) -> None:
        """There is work: this worker was woken for some queues, and other workers for others."""
        now = monotonic()
        earlier = [source.looks.nudge(now) for source in named]
        earlier += [source.looks.others_woken(now) for source in others]
        if any(earlier):
            self._bell.ring()

    def stop(self) -> None:
        """Take no more."""
        self._stopping = True
        self._bell.ring()

    def run(self) -> None:
        """Take until stopped, or until nobody calls handlers any more."""
        while not self._stopping and not self._crew.gone():
            try:
                wait = self._round(monotonic())
                self._outage.over()
            except BaseException as error:  # noqa: BLE001 - whatever it is, messages must be taken
                self._stats.failures += 1
                wait = self._outage.failed(error)
            if wait > 0:
                self._bell.wait(min(wait, _LONGEST))
            self.hungry_at = -1
        # What came while it was being stopped.
        self.give_back()
        self._sleeper.close(self._line, self._sources)
        self._line.close()

    def _round(self, now: float) -> float:
        """Take what there is room for. Returns how long to wait for the next round, at most."""
        self._give_back_stale(now)
        self._recover(now)
        crew = self._crew
        buffered = len(crew.buffer)
        busy = crew.busy(now)
        room = self._pace.room(crew.free(), buffered, busy)
        # Said before it is known: what is settled from now on rings.
        self._choked = True
        self._choked = self._settler.backlog > _UNSETTLED
        if not room or self._choked:
            self.hungry_at = self._pace.ahead(busy) // 2
            # Somebody may have become free before that was set. A buffer that is not worked off is looked at again.
            return 0 if crew.free() and not crew.buffer and not self._choked else STALE / 2
        due = [source for source in self._sources if source.looks.next_at <= now]
        if due:
            self._take(due, room)
            return 0
        return max(0.0, min(min(source.looks.next_at, source.recovery.due_at) for source in self._sources) - now)

    def _recover(self, now: float) -> None:
        """Look after dequeues that were not answered, whether there is room for messages or not."""
        for source in self._sources:
            if source.recovery.due_at <= now:
                try:
                    self._line.run(source.recovery.turn)
                    source.recovery.outage.over()
                except BaseException as error:  # noqa: BLE001 - it is tried again
                    self._stats.failures += 1
                    source.recovery.outage.failed(error)

    def _take(self, due: list[ServedQueue], room: int) -> None:
        """One call a queue that is due; what one leaves the next ones may have."""
        for number, source in enumerate(due):
            limit = shares(room, len(due) - number)[0]
            if not limit or self._stopping:
                break
            try:
                room -= self._take_from(source, limit)
                source.outage.over()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the worker and its other queues go on
                self._stats.failures += 1
                source.looks.failed(monotonic(), source.outage.failed(error))
        # Who was asked first is asked last in the next round.
        first = due[0]
        self._sources.remove(first)
        self._sources.append(first)

    def _take_from(self, source: ServedQueue, limit: int) -> int:
        consumer = source.consumer
        self._sleeper.before_look(self._line, source)
        began = monotonic()
        source.looks.begin(began)
        with source.asking:
            if source.claims.is_lost(consumer.lease_id):
                consumer.forget_leases()
            lease_id = consumer.lease_id
            try:
                batch = self._line.run(lambda connection: consumer.dequeue(connection, limit, self._ask))
            except BaseException:
                source.recovery.unanswered(lease_id)
                raise
            now = source.heard_at = monotonic()
            self._pace.fetched(now - began)
        self._stats.dequeues += 1
        due_in = None if batch.due_in is None else batch.due_in.total_seconds()
        if batch:
            self._hand_on(source, batch, now)
            self._stats.taken += len(batch)
            source.looks.found(now, due_in, count=len(batch), full=len(batch) == limit)
            self._sleeper.after_work(self._line, source)
        else:
            self._stats.empty += 1
            source.looks.nothing(now, due_in)
        return len(batch)

    def _hand_on(self, source: ServedQueue, batch: Batch, now: float) -> None:
        # All deliveries of a batch are under one lease.
        claim = source.claim_of(batch[0])
        contexts = [Context(delivery, claim, source, now) for delivery in batch]
        claim.held.update(contexts)
        self._crew.buffer.extend(contexts)
        self._crew.start()

    def _give_back_stale(self, now: float) -> None:
        """Nobody came for the buffer: handlers take longer than they used to, and others may be free."""
        taken_at = self._crew.buffer.next_taken_at()
        if taken_at is not None and now - taken_at > STALE:
            self.give_back()

    def give_back(self) -> None:
        """Give back all that nobody works on, uncounted."""
        while (context := self._crew.buffer.pop()) is not None:
            self._settler.end(context, RELEASE)
