"""Queues as one worker serves them, their leases, the deliveries that it holds under these, and the heartbeat.

The database's clock decides when a lease ends; a worker that cannot ask it must be on the safe side. So each sign of
life (a dequeue, an extension) counts from the moment **before** it was sent. However late it arrived, the lease was
good for its duration from then on at least.

No handler or event loop can delay the heartbeat for long. A lease that holds a delivery is extended several times
before it would end. A lease also ends by the worker's own clock; then the heartbeat logs the loss and interrupts the
handlers.
"""

from __future__ import annotations

import math
import shlex
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy_fairqueue.codecs import decoded
from sqlalchemy_fairqueue.database import deliveries
from sqlalchemy_fairqueue.database.deliveries import Token
from sqlalchemy_fairqueue.errors import HandlerTimeout, LeaseLost, MessageCancelled, WorkerError
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.queue.contexts import middleware_for, middleware_of
from sqlalchemy_fairqueue.queue.handlers import handlers_of
from sqlalchemy_fairqueue.values.messages import MOST_COST, Lease, Once
from sqlalchemy_fairqueue.worker.timings import PollSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.contexts import AnyMiddleware
    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.values.messages import Delivery
    from sqlalchemy_fairqueue.values.outcomes import Outcome, RetryPolicy
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
    from sqlalchemy_fairqueue.worker.timings import Backoff, Clock

# Handlers that run are charged for so many seconds ahead, so that a tenant whose report comes late does not look idle;
# fq_estimate has the same number. Those that began just now are not: most of them end before the next report.
_CHARGED_AHEAD = 2.0
_CHARGED_AFTER = 0.5
# Guards up to what running handlers were charged, and whether their settlement is under way.
_charging = threading.Lock()


@dataclass(slots=True, eq=False)
class TrackedLease:
    """One lease of a worker: until when it is known to be alive, and what is held under it.

    Attributes:
        lease_id: The lease.
        deadline: It is known to be alive until then, by the worker's clock.
        clock: The worker's.
        held: The deliveries that are not settled yet. The fetcher adds to it, the settler removes from it.
        given_up: Deliveries that the worker has settled without their handlers, which still run: message and number.
        told: Whether the handlers were told that it is lost.
    """

    lease_id: int
    deadline: float
    clock: Clock
    held: set[HeldDelivery] = field(default_factory=set)
    given_up: set[tuple[int, int]] = field(default_factory=set)
    told: bool = False
    _lost: bool = False

    @property
    def lost(self) -> bool:
        """Whether it is not known to be alive. Once anybody was told so, it stays so."""
        if not self._lost and self.clock() >= self.deadline:
            self._lost = True
        return self._lost

    def lose(self) -> None:
        """The database says that it is gone."""
        self._lost = True

    def extend(self, until: float) -> None:
        """A call has shown that it is alive; too late if anybody may have been told otherwise."""
        if not self.lost and until > self.deadline:
            self.deadline = until

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """In another process nothing is known of it."""
        return type(None), ()


@dataclass(frozen=True, slots=True)
class WorkerLease(Lease):
    """The lease on a worker's deliveries, which knows whether it is alive: verbs of a lost one fail without asking."""

    tracked: TrackedLease | None

    @property
    def lost(self) -> bool:
        """Whether the worker that took it does not know it to be alive any more."""
        return self.tracked is not None and self.tracked.lost

    def lost_for(self, delivery: Delivery) -> bool:
        """Whether the worker does not know it to be alive any more, or has settled the delivery without its handler."""
        tracked = self.tracked
        return tracked is not None and (tracked.lost or (delivery.message_id, delivery.deliveries) in tracked.given_up)

    def measured(self, delivery: Delivery) -> tuple[int | None, int | None]:
        """What a timed delivery has cost, and up to what its channel was charged; it is not charged any more."""
        for held in () if self.tracked is None else self.tracked.held.copy():
            if held.delivery == delivery:
                return held.measured_cost, held.stop_charging()
        return None, None


@dataclass(slots=True, eq=False, repr=False)
class HeldDelivery:
    """A delivery in a worker's hands, from the dequeue until it is settled.

    Attributes:
        delivery: The delivery.
        queue: Its queue.
        lease: The lease that it is held under.
        taken_at: When it was taken from its queue, by the worker's clock.
        cancelled: Somebody withdrew the message.
        cancelled_at: When the handler was told that a message of its batch is withdrawn, by the worker's clock; None:
            none is.
        stopping: The worker is asked to stop.
        given_up: The worker has settled it without its handler, which may still work on it.
        timeout: How long its handler may take. Known when the handler begins.
        time_over_at: When the time of its handler is over, by the worker's clock; None: it has no limit.
        max_attempts: After so many attempts the message becomes a dead letter. Known when its handler begins.
        cost: What the attempt cost, as its handler says; None: as it was charged, or as long as the handler took.
        first: The delivery whose handler gets this one, too: itself, unless it is in a batch behind another one.
        followers: The deliveries of its batch behind it.
        outcomes: What the handler asked for single deliveries of its batch, by message.
        charged: Up to how many milliseconds its channel was charged while its handler ran. None: it was not, or in
            full by the dequeue.
    """

    delivery: Delivery
    lease: TrackedLease
    queue: ServedQueue
    taken_at: float
    cancelled: bool = False
    cancelled_at: float | None = None
    stopping: bool = False
    given_up: bool = False
    timeout: timedelta | None = None
    time_over_at: float | None = None
    cost: int | None = None
    followers: list[HeldDelivery] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    charged: int | None = None
    max_attempts: int = field(init=False)
    first: HeldDelivery = field(init=False)
    _is_settling: bool = False
    _began_at: float | None = None

    def __post_init__(self) -> None:
        """Begin a batch of its own."""
        self.max_attempts = self.delivery.max_attempts
        self.first = self

    @property
    def batch(self) -> tuple[HeldDelivery, ...]:
        """All deliveries that its handler gets, in order."""
        return (self, *self.followers)

    def follow(self, first: HeldDelivery) -> None:
        """Join the batch of another delivery, the last one so far."""
        self.first = first
        first.followers.append(self)

    def begin(self) -> None:
        """The handler is looked for, and begins."""
        self._began_at = self.lease.clock()

    def begin_again(self, headers: dict[str, Any] | None) -> None:
        """The handler is called anew: nothing that the last call changed is left. *headers*: as they were enqueued."""
        content, codec = self.delivery.content, self.queue.queue.codec
        self.delivery = replace(self.delivery, headers=headers, decoded=Once(partial(decoded, codec, content)))
        self.cost = None
        self.outcomes.clear()
        self._is_settling = False

    @property
    def began(self) -> bool:
        """Whether its handler was looked for."""
        return self._began_at is not None

    @property
    def took(self) -> float | None:
        """The seconds since its handler was looked for. None: it was not."""
        return None if self._began_at is None else self.lease.clock() - self._began_at

    @property
    def measured_cost(self) -> int | None:
        """The cost of the attempt: as the handler said, or in a queue that is fair by seconds its milliseconds so far.

        The deliveries of a batch share both.
        """
        told, count = self.first.cost, len(self.first.batch)
        if told is not None:
            return told // count + (told % count if self is self.first else 0)
        if not self.delivery.is_timed:
            return None
        # Nobody has worked on one that did not begin.
        return 0 if self._began_at is None else self._milliseconds(0.0)

    def charge_on(self) -> tuple[int, int] | None:
        """Return up to how many milliseconds to charge its channel now, and up to how many it was charged so far.

        None: its handler is not to be charged now.
        """
        with _charging:
            took = self.took
            if not self.delivery.is_timed or self._is_settling or took is None or took < _CHARGED_AFTER:
                return None
            before, self.charged = self.charged, self._milliseconds(_CHARGED_AHEAD)
            return self.charged, before or 0

    def not_charged(self, before: int) -> None:
        """The charge failed."""
        with _charging:
            if not self._is_settling:
                self.charged = before or None

    def stop_charging(self) -> int | None:
        """Return up to what its channel was charged while its handler ran: it is settled, and not charged any more."""
        with _charging:
            self._is_settling = True
            return self.charged

    def _milliseconds(self, ahead: float) -> int:
        """Its part of the time that the handler of its batch has taken, and some more."""
        assert self._began_at is not None  # noqa: S101 - both callers have asked
        seconds = (self.lease.clock() - self._began_at) / len(self.first.batch) + ahead
        return min(max(1, math.ceil(seconds * 1000)), MOST_COST)

    @property
    def lost(self) -> bool:
        """Whether another consumer may have the message now."""
        return self.given_up or self.lease.lost

    @property
    def timed_out(self) -> bool:
        """Whether the handler has had its time."""
        return self.time_over_at is not None and self.lease.clock() >= self.time_over_at

    @property
    def enqueues(self) -> Queue | None:
        """The queue, for what the handler adds to its group; None in a child process."""
        served: ServedQueue | None = self.queue
        return None if served is None else served.queue

    def limit_time(self, timeout: timedelta | None) -> None:
        """The handler begins, and may take so long."""
        self.timeout = timeout
        self.time_over_at = None if timeout is None else self.lease.clock() + timeout.total_seconds()

    def give_up(self) -> None:
        """The worker settles its batch without the handler, which cannot settle it any more."""
        for held in self.batch:
            held.given_up = True
            held.lease.given_up.add((held.delivery.message_id, held.delivery.deliveries))

    def returned(self) -> None:
        """Its handler has returned, after it was given up: only the database needs to refuse what comes now."""
        for held in self.batch:
            held.lease.given_up.discard((held.delivery.message_id, held.delivery.deliveries))

    def check(self) -> None:
        """Return if the handler may go on; else raise LeaseLost, MessageCancelled or HandlerTimeout."""
        if self.lease.lost or (self.given_up and not self.timed_out):
            lease = self.delivery.lease
            raise LeaseLost((self.delivery.message_id,), lease.id, lease.expires_at)
        for held in self.batch:
            if held.cancelled:
                raise MessageCancelled(held.delivery.message_id)
        self.check_time()

    def check_time(self) -> None:
        """Raise HandlerTimeout if the handler has had its time."""
        if self.timed_out:
            raise HandlerTimeout(self.delivery.message_id, self.delivery.kind, self.timeout)


class ServedQueue:
    """One queue of a worker: its consumer, its handlers, its polls, and its leases.

    Args:
        queue: The queue.
        options: The worker's.
        resources: For its handlers, by name. They are there when the first one is called.

    Attributes:
        queue: The queue.
        target: Its schema and name.
        consumer: Dequeues from it.
        leases: The worker's leases of the queue, by id.
        polls: When to poll it.
        backoff: Failures of its dequeues.
        dequeuing: Held while a dequeue is under way.
        heard_at: When its signals were last heard, by the worker's clock.
        resources: For its handlers, by name.
        reference: The options that name it to the command line.
        waiting_lease: The lease under which the worker's wait is registered, if it ever was.
    """

    def __init__(self, queue: Queue, options: WorkerOptions, resources: Mapping[str, Any]) -> None:
        self.queue = queue
        self.resources = resources
        schema = "" if queue.schema is None else f" --schema {shlex.quote(queue.schema)}"
        self.reference: str = options.references.get(
            (queue.schema, queue.name), f"--queue {shlex.quote(queue.name)}{schema}"
        )
        self.target: Target = queue._target  # noqa: SLF001 - with its bind arguments
        self.consumer: Consumer = Consumer(self.target, queue.codec, options.name, self.track)
        self.leases: dict[int, TrackedLease] = {}
        self.polls: PollSchedule = PollSchedule(options.interval_without_notifications, options.timings)
        self.backoff: Backoff = options.backoff(f"dequeue from {queue.name!r}")
        self.dequeuing: threading.Lock = threading.Lock()
        self.heard_at: float = 0.0
        self.waiting_lease: int | None = None
        self._clock = options.clock
        self._lease_seconds = options.ask.total_seconds()
        self._middleware = middleware_of(queue, options.middleware)
        self._around: dict[str, tuple[AnyMiddleware, ...]] = {}

    def track(self, lease: Lease, sent_at: float) -> WorkerLease:
        """Note the lease of a dequeue that was sent then; the lease to put on its deliveries."""
        until = sent_at + self._lease_seconds
        tracked = self.leases.setdefault(lease.id, TrackedLease(lease.id, until, self._clock))
        tracked.extend(until)
        return WorkerLease(lease.id, lease.consumer, lease.expires_at, tracked)

    def hold(self, deliveries: list[Delivery], taken_at: float) -> HeldDelivery:
        """Note the deliveries of a batch, which are all under one lease that was tracked; the first one."""
        tracked = cast("TrackedLease", cast("WorkerLease", deliveries[0].lease).tracked)
        first, *followers = [HeldDelivery(delivery, tracked, self, taken_at) for delivery in deliveries]
        for follower in followers:
            follower.follow(first)
        tracked.held.update(first.batch)
        return first

    def lease_ids(self) -> list[int]:
        """The ids of all leases of the queue, also of the one that waits."""
        return [*self.leases, *([] if self.waiting_lease is None else [self.waiting_lease])]

    def held(self) -> list[TrackedLease]:
        """The leases that anything is held under. Those that are lost and empty are forgotten."""
        leases = list(self.leases.values())
        for lease in leases:
            if not lease.held and lease.lost:
                self.leases.pop(lease.lease_id, None)
        return [lease for lease in leases if lease.held]

    def handler(self, kind: str) -> Handler:
        """The handler of a kind.

        Raises:
            WorkerError: There is none.
        """
        handler = handlers_of(self.queue).get(kind)
        if handler is None:
            known = ", ".join(sorted(handlers_of(self.queue))) or "none"
            raise WorkerError(
                f"queue {self.queue.name!r} has no handler for kind {kind!r} in this worker (it knows: {known}); "
                f"declare one with @queue.handler({kind!r}), or leave the kind to workers that know it"
            )
        return handler

    def around(self, handler: Handler) -> tuple[AnyMiddleware, ...]:
        """The middleware around a handler, outermost first.

        Raises:
            WorkerError: There is some, but none for handlers like this one.
        """
        if not self._middleware:
            return ()
        found = self._around.get(handler.kind)
        if found is None:
            found = self._around[handler.kind] = middleware_for(handler, self._middleware)
        return found

    def policy(self, handler: Handler | None, default: RetryPolicy) -> RetryPolicy:
        """The policy by which failures of a kind are tried again."""
        return default if handler is None or handler.retry is None else handler.retry


# Channels that the buffer remembers beyond those that can matter.
_SPARE = 1000


class Buffer:
    """Deliveries that wait for a handler, in turns by channel. One thread adds, any thread takes.

    A dequeue gives messages in turns, but a tenant that comes with a later dequeue would wait behind all that the
    buffer holds of another. So the buffer takes turns too. Each message gets a virtual time: now or, if that is later,
    one after the last message of its channel; the earliest begins. Virtual time goes on by one while as many messages
    begin as wait, so that new channels, however many come, do not keep coming before those who wait. A channel's
    messages stay in their order.

    Source: start-time fair queueing (Goyal, Vin, Cheng 1996), with messages of one size.

    Attributes:
        filled_at: When the last ones were taken from their queue, by the worker's clock.
    """

    __slots__ = ("_last", "_now", "_number", "_waiting", "filled_at")

    def __init__(self) -> None:
        self.filled_at: float = 0.0
        # A heap: one call of heapq is one step for other threads, for it compares nothing but numbers.
        self._waiting: list[tuple[float, int, HeldDelivery]] = []
        # The virtual time of each channel's last message, where that may still matter.
        self._last: dict[tuple[ServedQueue, str], float] = {}
        self._now = 0.0
        self._number = 0

    def __len__(self) -> int:
        """The number of deliveries that wait."""
        return len(self._waiting)

    def size(self) -> int:
        """The bytes of the contents of the deliveries that wait."""
        # A copy, which is one step for other threads.
        return sum(len(one.delivery.content) for _, _, held in self._waiting.copy() for one in held.batch)

    def extend(self, deliveries: Iterable[HeldDelivery]) -> None:
        """Add deliveries, in the order in which the dequeue gave them."""
        if not self._waiting:
            self._last.clear()
        elif len(self._last) > 2 * len(self._waiting) + _SPARE:
            self._last = {channel: at for channel, at in self._last.items() if at + 1 > self._now}
        for held in deliveries:
            channel = (held.queue, held.delivery.channel)
            at = self._last[channel] = max(self._now, self._last.get(channel, -1.0) + 1)
            self._number += 1
            self.filled_at = held.taken_at
            heappush(self._waiting, (at, self._number, held))

    def pop(self) -> HeldDelivery | None:
        """Take the next one out; None: there is none."""
        try:
            at, _, held = heappop(self._waiting)
        except IndexError:
            return None
        self._now = max(at, self._now + 1 / (len(self._waiting) + 1))
        return held

    def next_taken_at(self) -> float:
        """The time at which the next one was taken from its queue, by the worker's clock; infinite: there is none."""
        try:
            return self._waiting[0][2].taken_at
        except IndexError:
            return math.inf


def run_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take all of these steps: what one of them refuses costs no other its turn.

    Raises:
        Exception: The first failure, after the last step.
    """
    failures = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if failures:
        raise failures[0]


def by_schema(queues: Iterable[ServedQueue]) -> dict[str | None, dict[str, ServedQueue]]:
    """Return the queues of each installation, by name."""
    found: dict[str | None, dict[str, ServedQueue]] = {}
    for queue in queues:
        found.setdefault(queue.target.schema, {})[queue.target.queue] = queue
    return found


@dataclass(kw_only=True, eq=False)
class Heartbeat:
    """What one thread of a worker does for the deliveries that are held, while handlers work on them.

    Attributes:
        connection: That of the thread.
        options: The worker's.
        queues: The queues.
        interrupt: Called with deliveries whose handlers should stop: the lease is lost, or the message was cancelled.
        stats: It counts heartbeats and cancelled messages.
    """

    connection: DedicatedConnection
    options: WorkerOptions
    queues: Sequence[ServedQueue]
    interrupt: Callable[[list[HeldDelivery]], None]
    stats: WorkerStats

    def hear_all(self) -> None:
        """Apply the signals of queues that the fetcher has not dequeued from for a while: all handlers are at work."""
        run_all(partial(self._hear, queue) for queue in self.queues)

    def _hear(self, queue: ServedQueue) -> None:
        now = self.options.clock()
        is_due = now - queue.heard_at > self.options.timings.hear_after and queue.polls.next_at <= now
        if is_due and queue.dequeuing.acquire(blocking=False):
            try:
                self.connection.run(queue.consumer.hear, within=self.options.beat)
                queue.heard_at = self.options.clock()
            finally:
                queue.dequeuing.release()

    def charge_all(self) -> None:
        """Charge channels of queues that are fair by seconds for handlers that run, so that none gets all workers."""
        run_all(partial(self._charge, queue) for queue in self.queues)

    def _charge(self, queue: ServedQueue) -> None:
        held = [one for lease in queue.held() for one in lease.held.copy()]
        charges = [(one, to) for one in held if (to := one.charge_on()) is not None]
        if not charges:
            return
        charged = [one.delivery for one, _ in charges]
        tokens = [Token(one.message_id, one.row_id, one.lease.id, one.deliveries) for one in charged]
        send = partial(deliveries.charge_running, target=queue.target, tokens=tokens, charges=[to for _, to in charges])
        try:
            self.connection.run(send, within=self.options.beat)
        except Exception:
            for one, (_, before) in charges:
                one.not_charged(before)
            raise

    def extend_all(self) -> None:
        self._tell_lost()
        try:
            held = ((queue, [lease for lease in queue.held() if not lease.lost]) for queue in self.queues)
            run_all(partial(self._extend, queue, leases) for queue, leases in held if leases)
        finally:
            self._tell_lost()

    def end(self) -> None:
        """End the leases that nothing is held under: the worker has stopped. Those that stay expire."""
        run_all(partial(self._end, queue) for queue in self.queues)

    def _end(self, queue: ServedQueue) -> None:
        known = {*queue.leases, *queue.consumer.lease_ids(), queue.waiting_lease}
        if lease_ids := sorted(one for one in known if one is not None):
            doing = f"end {len(lease_ids)} leases of {queue.target.named()}"
            end = queue.target.call("fq_end_leases", doing, lease_ids=lease_ids)
            self.connection.run(end.rows, within=self.options.timings.end_leases)

    def _extend(self, queue: ServedQueue, leases: list[TrackedLease]) -> None:
        by_id = {lease.lease_id: lease for lease in leases}
        duration, sent_at = self.options.lease, self.options.clock()
        # After a longer wait for the answer the lease is lost.
        within = max(0.1, min(lease.deadline for lease in leases) - sent_at)
        extend = partial(deliveries.heartbeat, target=queue.target, lease_ids=list(by_id), lease=duration)
        self.stats.heartbeats += 1
        for lease_id, expires_at, cancelled in self.connection.run(extend, within=within):
            lease = by_id[lease_id]
            if expires_at is None:
                lease.lose()
            else:
                lease.extend(sent_at + duration.total_seconds())
            if cancelled:
                self._cancel(lease, set(cancelled))

    def _cancel(self, lease: TrackedLease, message_ids: set[int]) -> None:
        cancelled = []
        for held in lease.held.copy():
            if held.delivery.message_id in message_ids and not held.cancelled:
                held.cancelled = True
                held.first.cancelled_at = held.first.cancelled_at or self.options.clock()
                cancelled.append(held)
        if cancelled:
            self.stats.cancelled += len(cancelled)
            self.interrupt(cancelled)

    def _tell_lost(self) -> None:
        """Log each lost lease and interrupt its handlers, once a lease."""
        for queue in self.queues:
            for lease in queue.held():
                if lease.told or not lease.lost:
                    continue
                lease.told = True
                held = list(lease.held.copy())
                self.options.log.error(
                    "lost lease %d with %d deliveries of queue %s: it could not be extended in time",
                    *(lease.lease_id, len(held), queue.queue.name),
                    extra={"queue": queue.queue.name, "lease_id": lease.lease_id},
                )
                self.interrupt(held)
