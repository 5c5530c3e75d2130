"""The queues of one worker, their leases and deliveries, and how these are settled.

The database's clock decides when a lease ends, and a worker that cannot ask must be on the safe side. So it counts a
lease's duration from the moment **before** it sent the dequeue or the extension: the lease lives at least that long.
"""

from __future__ import annotations

import logging
import math
import shlex
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy_fairqueue.codecs import decoded
from sqlalchemy_fairqueue.errors import HandlerTimeout, LeaseLost, MessageCancelled, WorkerError
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.queue.contexts import AnyMiddleware, middleware_for, middleware_of
from sqlalchemy_fairqueue.queue.handlers import Handler, handlers_of
from sqlalchemy_fairqueue.unit_of_work.operations import Settle, Verb
from sqlalchemy_fairqueue.values.checks import check_duration, check_text
from sqlalchemy_fairqueue.values.messages import MOST_COST, Delivery, Lease, Undecoded
from sqlalchemy_fairqueue.worker.timings import Backoff, Clock, PollSchedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.database.deliveries import EncodedResult
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.outcomes import Outcome, RetryPolicy
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

# Seconds that running handlers are charged ahead, so that a tenant does not look idle between two charges. fq_estimate
# has the same number.
_CHARGED_AHEAD = 2.0
# Seconds that a handler must have run before its channel is charged, since most handlers end before the next charge.
_CHARGED_AFTER = 0.5
# Guards how much running handlers were charged, and whether their settlement has begun.
_charging = threading.Lock()


@dataclass(frozen=True, slots=True)
class Decision:
    """How to settle a delivery: a verb and its arguments. If *sent*, the delivery is settled already, or lost."""

    verb: Verb
    delay: timedelta | None = None
    reason: str | None = None
    error: str | None = None
    sent: bool = False
    result: EncodedResult | None = None

    def __post_init__(self) -> None:
        # Checked here, since policies and outcomes of the application may hold anything.
        if self.delay is not None:
            object.__setattr__(self, "delay", check_duration("delay", self.delay))
        for what, text in ("reason", self.reason), ("error", self.error):
            if text is not None:
                object.__setattr__(self, what, check_text(what, text))

    def operation(
        self, target: Target, delivery: Delivery, cost: int | None = None, charged: int | None = None
    ) -> Settle:
        return Settle(target, self.verb, delivery, self.delay, self.reason, self.error, cost, charged, self.result)

    @property
    def result_bytes(self) -> int:
        return 0 if self.result is None else len(self.result.content or b"")


def _ascii(text: str | None) -> str | None:
    return None if text is None else text.encode("ascii", "backslashreplace").decode()


COMPLETE = Decision(Verb.COMPLETE)
RELEASE = Decision(Verb.RELEASE)
# The delivery is no longer this worker's, so nothing is sent.
LOST = Decision(Verb.RELEASE, sent=True)


@dataclass(slots=True, eq=False)
class TrackedLease:
    """A lease of a worker, and the deliveries under it.

    Attributes:
        deadline: The lease is known to live until then, by the worker's clock.
        told: Whether the handlers were told of its loss.
    """

    lease_id: int
    deadline: float
    clock: Clock
    held: set[HeldDelivery] = field(default_factory=set)
    told: bool = False
    _lost: bool = False

    @property
    def lost(self) -> bool:
        """Whether the lease may have ended. Once True, this stays True."""
        if not self._lost and self.clock() >= self.deadline:
            self._lost = True
        return self._lost

    def lose(self) -> None:
        self._lost = True

    def extend(self, until: float) -> None:
        if not self.lost and until > self.deadline:
            self.deadline = until


@dataclass(frozen=True, slots=True)
class WorkerLease(Lease):
    """The lease of a worker's deliveries. Verbs on deliveries of a lost lease fail without asking the database."""

    tracked: TrackedLease

    @property
    def lost(self) -> bool:
        return self.tracked.lost

    def lost_for(self, delivery: Delivery) -> bool:
        held = self._held(delivery)
        return self.lost or held is None or held.given_up

    def measured(self, delivery: Delivery) -> tuple[int | None, int | None]:
        held = self._held(delivery)
        return (None, None) if held is None else (held.measured_cost, held.stop_charging())

    def _held(self, delivery: Delivery) -> HeldDelivery | None:
        known, token = self.tracked.held.copy(), (delivery.message_id, delivery.deliveries)
        return next((held for held in known if (held.delivery.message_id, held.delivery.deliveries) == token), None)

    def __reduce__(self) -> tuple[type[Lease], tuple[object, ...]]:
        # A plain lease, since another process has no access to the state of this worker.
        return Lease, (self.id, self.consumer, self.expires_at)


@dataclass(slots=True, eq=False, repr=False)
class HeldDelivery:
    """A delivery in a worker's hands, from the dequeue until it is settled. Times are by the worker's clock.

    Attributes:
        cancelled_at: When the handler was told that a message of its batch is cancelled.
        given_up: Whether the worker has settled the delivery without its handler, which may still run.
        time_over_at: The end of the timeout, or None; set when the handler begins.
        max_attempts: The message's own limit of attempts; once handling has begun, the policy's limit if that is lower.
        first: The first delivery of the batch, or the delivery itself if it has no batch. It is not an argument.
        outcomes: How the handler wants single deliveries of its batch to be settled, by message id.
        charged: The total of milliseconds that the worker has charged to the channel for the handler's time so far.
            None if the worker has charged nothing since the dequeue.
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
    decision: Decision = LOST
    charged: int | None = None
    max_attempts: int = field(init=False)
    first: HeldDelivery = field(init=False)
    _is_settling: bool = False
    _began_at: float | None = None

    def __post_init__(self) -> None:
        self.max_attempts = self.delivery.max_attempts
        self.first = self

    @property
    def batch(self) -> tuple[HeldDelivery, ...]:
        return (self, *self.followers)

    def say_in_ascii(self) -> bool:
        before = self.decision
        self.decision = replace(before, reason=_ascii(before.reason), error=_ascii(before.error))
        if changed := self.decision != before:
            self.log(logging.WARNING, "is settled with its reason and error in ASCII, which every encoding has")
        return changed

    def log(self, level: int, what: str) -> None:
        self.queue.options.log.message(level, self.delivery, what)

    def begin(self) -> None:
        self._began_at = self.lease.clock()

    def begin_again(self, headers: dict[str, Any] | None) -> None:
        """Reset what the last call of the handler changed; *headers* are the headers of the enqueue."""
        undecoded = Undecoded(partial(decoded, self.queue.queue.codec))
        self.delivery = replace(self.delivery, headers=headers, decoded=undecoded)
        self.cost = None
        self.outcomes.clear()
        self._is_settling = False

    @property
    def took(self) -> float | None:
        return None if self._began_at is None else self.lease.clock() - self._began_at

    @property
    def measured_cost(self) -> int | None:
        """The delivery's share of what its batch has cost, or None if that was not measured.

        The cost of a batch is what its handler set. If the handler set none, it is the time so far in milliseconds, but
        only in a queue that is fair by seconds.
        """
        told, count = self.first.cost, len(self.first.batch)
        if told is not None:
            return told // count + (told % count if self is self.first else 0)
        if not self.delivery.is_timed:
            return None
        # Nobody has worked on a delivery that did not begin.
        took = self.took
        return 0 if took is None else self._milliseconds(took)

    def charge_on(self) -> tuple[int, int] | None:
        """Note a charge for the handler's time so far and two seconds ahead. Return the new and the former total.

        Both are in milliseconds. Return None if the handler began less than half a second ago, or is not charged.
        """
        with _charging:
            took = self.took
            if not self.delivery.is_timed or self._is_settling or took is None or took < _CHARGED_AFTER:
                return None
            before, self.charged = self.charged, self._milliseconds(took, _CHARGED_AHEAD)
            return self.charged, before or 0

    def not_charged(self, before: int) -> None:
        with _charging:
            if not self._is_settling:
                self.charged = before or None

    def stop_charging(self) -> int | None:
        """Stop charging, since the delivery is being settled, and return the milliseconds charged so far."""
        if not self.delivery.is_timed:
            return None
        with _charging:
            self._is_settling = True
            return self.charged

    def _milliseconds(self, took: float, ahead: float = 0.0) -> int:
        return min(max(1, math.ceil((took / len(self.first.batch) + ahead) * 1000)), MOST_COST)

    @property
    def lost(self) -> bool:
        """Whether another consumer may have the message now."""
        return self.given_up or self.lease.lost

    @property
    def timed_out(self) -> bool:
        return self.time_over_at is not None and self.lease.clock() >= self.time_over_at

    @property
    def enqueues(self) -> Queue | None:
        # None in a child process.
        served: ServedQueue | None = self.queue
        return None if served is None else served.queue

    def limit_time(self, timeout: timedelta | None) -> float:
        """Start the timeout, if there is one. Return the time of its end by the worker's clock, or infinity."""
        self.timeout = timeout
        self.time_over_at = None if timeout is None else self.lease.clock() + timeout.total_seconds()
        return self.time_over_at or math.inf

    def give_up(self) -> None:
        for held in self.batch:
            held.given_up = True

    def check(self) -> None:
        if self.lease.lost or (self.given_up and not self.timed_out):
            lease = self.delivery.lease
            raise LeaseLost((self.delivery.message_id,), lease.id, lease.expires_at)
        for held in self.batch:
            if held.cancelled:
                raise MessageCancelled(held.delivery.message_id)
        self.check_time()

    def check_time(self) -> None:
        if self.timed_out:
            raise HandlerTimeout(self.delivery.message_id, self.delivery.kind, self.timeout)


def held_batch(
    deliveries: Iterable[Delivery], lease: TrackedLease, queue: ServedQueue, taken_at: float
) -> HeldDelivery:
    first, *followers = [HeldDelivery(delivery, lease, queue, taken_at) for delivery in deliveries]
    first.followers = followers
    for follower in followers:
        follower.first = first
    return first


class ServedQueue:
    """A queue of a worker: its consumer, handlers, polls and leases.

    Attributes:
        resources: Resources for its handlers, by name; filled before the first call.
        heard_at: When its signals were last heard, by the worker's clock.
        reference: The command line's options that name the queue.
        waiting_lease: The id of the lease under which the worker registers its waits; None before the first wait.
    """

    def __init__(self, queue: Queue, options: WorkerOptions, resources: Mapping[str, Any]) -> None:
        self.queue = queue
        self.options = options
        self.resources = resources
        schema = "" if queue.schema is None else f" --schema {shlex.quote(queue.schema)}"
        self.reference: str = options.references.get(
            (queue.schema, queue.name), f"--queue {shlex.quote(queue.name)}{schema}"
        )
        self.target: Target = queue._target  # noqa: SLF001 - with its bind arguments
        self.consumer: Consumer = Consumer(self.target, queue.codec, options.name, self.track)
        self.leases: dict[int, TrackedLease] = {}
        self.polls: PollSchedule = PollSchedule(options.interval(notified=False), options.timings)
        self.backoff: Backoff = options.backoff(f"dequeue from {queue.name!r}")
        self.dequeuing: threading.Lock = threading.Lock()
        self.heard_at: float = 0.0
        self.waiting_lease: int | None = None
        self._middleware = middleware_of(queue, options.middleware)
        self._around: dict[str, tuple[AnyMiddleware, ...]] = {}

    def track(self, lease: Lease, sent_at: float) -> WorkerLease:
        until = sent_at + self.options.ask.total_seconds()
        tracked = self.leases.setdefault(lease.id, TrackedLease(lease.id, until, self.options.clock))
        tracked.extend(until)
        return WorkerLease(lease.id, lease.consumer, lease.expires_at, tracked)

    def hold(self, deliveries: list[Delivery], taken_at: float) -> HeldDelivery:
        tracked = cast("WorkerLease", deliveries[0].lease).tracked
        first = held_batch(deliveries, tracked, self, taken_at)
        tracked.held.update(first.batch)
        return first

    def lease_ids(self) -> list[int]:
        waiting = () if self.waiting_lease is None else (self.waiting_lease,)
        return sorted({*self.leases, *self.consumer.lease_ids(), *waiting})

    def held(self) -> list[TrackedLease]:
        """Return the leases with deliveries, and forget lost leases that have none."""
        leases = list(self.leases.values())
        for lease in leases:
            if not lease.held and lease.lost:
                self.leases.pop(lease.lease_id, None)
        return [lease for lease in leases if lease.held]

    def handler(self, kind: str) -> Handler:
        handler = handlers_of(self.queue).get(kind)
        if handler is None:
            known = ", ".join(sorted(handlers_of(self.queue))) or "none"
            raise WorkerError(
                f"queue {self.queue.name!r} has no handler for kind {kind!r} in this worker (it knows: {known}); "
                f"declare one with @queue.handler({kind!r}), or leave the kind to workers that know it"
            )
        return handler

    def around(self, handler: Handler) -> tuple[AnyMiddleware, ...]:
        if handler.kind not in self._around:
            self._around[handler.kind] = middleware_for(handler, self._middleware)
        return self._around[handler.kind]

    def policy(self, kind: str) -> RetryPolicy:
        handler = handlers_of(self.queue).get(kind)
        return self.options.retry if handler is None or handler.retry is None else handler.retry


# The buffer may remember this many channels that it no longer needs, since a clean-up looks through all channels.
_SPARE = 1000


class Buffer:
    """Deliveries that wait for a handler, in fair order by channel. One thread adds, any thread takes.

    Without turns in the buffer, later messages would wait behind all earlier ones, even behind many of one tenant. So
    the buffer has a virtual time of its own. An added message gets the later of two times: the present virtual time,
    and one more than the time of its channel's last message. The message with the earliest time begins first. Virtual
    time then advances by 1/(n+1), if n messages still wait. If the time of the begun message is later than that,
    virtual time becomes the time of this message. Since virtual time always advances, messages of new channels cannot
    overtake waiting messages for ever. Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
    """

    def __init__(self) -> None:
        self.filled_at: float = 0.0
        # A heap. One call of heapq is atomic for other threads, since it compares only numbers.
        self._waiting: list[tuple[float, int, HeldDelivery]] = []
        # The virtual time of each channel's last message, if it may still matter.
        self._last: dict[tuple[ServedQueue, str], float] = {}
        self._now = 0.0
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def size(self) -> int:
        # A copy, which is atomic for other threads.
        return sum(len(one.delivery.content) for _, _, held in self._waiting.copy() for one in held.batch)

    def extend(self, deliveries: Iterable[HeldDelivery]) -> None:
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
        try:
            at, _, held = heappop(self._waiting)
        except IndexError:
            return None
        self._now = max(at, self._now + 1 / (len(self._waiting) + 1))
        return held

    def next_taken_at(self) -> float:
        """Return when the next delivery was dequeued, by the worker's clock; infinity if the buffer is empty."""
        # A copy, since other threads take deliveries.
        first = self._waiting[:1]
        return first[0][2].taken_at if first else math.inf
