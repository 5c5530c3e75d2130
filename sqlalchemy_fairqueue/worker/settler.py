"""Settler of a worker: one thread settles the deliveries whose handlers finished, in batches.

No delivery waits for a batch to fill: the next call settles all that finished during the last one. So an idle worker
settles each delivery at once, and a busy one a few hundred in a call. If the connection breaks, the settler sends the
same settlements again until the server answers. The tokens of the deliveries make that harmless, and the heartbeat
extends the lease until then. A message that another transaction has locked is tried again alone, so that the others do
not wait for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.unit_of_work.settlements import Verb
from sqlalchemy_fairqueue.worker.settlement_writer import SettlementWriter
from sqlalchemy_fairqueue.worker.telemetry import log
from sqlalchemy_fairqueue.worker.timings import Backoff
from sqlalchemy_fairqueue.worker.wakeups import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.decisions import Decision
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats

_RETURNING = (Verb.RETRY, Verb.RELEASE)


class Settler:
    """Settles the deliveries of one worker.

    Args:
        connection: Its own.
        options: The worker's.
        stats: It counts what became of deliveries.
        settled: Called after each call with the queues in which that may have made room for messages, if any.
    """

    def __init__(
        self,
        connection: DedicatedConnection,
        options: WorkerOptions,
        stats: WorkerStats,
        settled: Callable[[set[ServedQueue]], None],
    ) -> None:
        self._connection = connection
        self._name = options.name
        self._stats = stats
        self._settled = settled
        self._clock = options.clock
        self._timings = options.timings
        self._writer = SettlementWriter(connection, options.name, stats)
        self._backoff = Backoff("settle deliveries", options.name, options.clock, options.timings)
        self._finished: deque[tuple[HeldDelivery, Decision | None]] = deque()
        # Deliveries whose call was not answered yet.
        self._pending: dict[HeldDelivery, Decision] = {}
        # Deliveries whose message was locked, each with the time to try it again.
        self._locked: deque[tuple[float, HeldDelivery, Decision]] = deque()
        self._event = WakeEvent()
        self._give_up_at: float | None = None
        # No call before, however many deliveries are finished meanwhile: the database is away.
        self._retry_at = 0.0

    def settle(self, held: HeldDelivery, decision: Decision | None) -> None:
        """Settle a delivery; None: it is not this worker's any more. Any thread may call it."""
        self._finished.append((held, decision))
        self._event.set()

    @property
    def backlog(self) -> int:
        """The number of deliveries that wait to be settled."""
        return len(self._finished) + len(self._pending)

    def stop(self) -> None:
        """Settle what there is and stop; after ten seconds in any case if the database is away."""
        self._give_up_at = self._clock() + self._timings.settle_at_stop
        self._retry_at = 0.0
        self._event.set()

    def run(self) -> None:
        """Settle until it is stopped."""
        while True:
            try:
                self._gather()
                wait = self._write()
            except BaseException as error:  # noqa: BLE001 - after any failure deliveries wait to be settled
                self._stats.failed()
                wait = self._backoff.failed(error)
                # What the schema of one queue refuses keeps no other queue waiting.
                if not isinstance(error, FairQueueError):
                    self._retry_at = self._clock() + wait
            if self._give_up_at is not None and not self._finished:
                left = len(self._pending) + len(self._locked)
                if not left:
                    break
                if self._clock() > self._give_up_at:
                    self._leave_unsettled(left)
                    break
            if (wait is None or wait > 0) and not self._finished:
                self._event.wait(wait)
        self._connection.close()

    def _write(self) -> float | None:
        """Send what is pending, unless the database is away. Returns when to call this again, in seconds from now."""
        if (wait := self._retry_at - self._clock()) > 0:
            return wait
        self._flush()
        self._try_locked()
        self._backoff.succeeded()
        return self._locked[0][0] - self._clock() if self._locked else None

    def _gather(self) -> None:
        queues: set[ServedQueue] = set()
        is_settled = False
        while self._finished:
            held, decision = self._finished.popleft()
            if decision is not None and not decision.sent:
                self._pending[held] = decision
                continue
            # Its own transaction has settled it, or it is not this worker's any more.
            if decision is None:
                self._writer.count_lost([held.delivery])
            else:
                self._writer.count(decision.verb, [(held, decision)])
                self._poll_when_due(held.queue, [decision])
            held.lease.held.discard(held)
            if self._makes_room(held, decision):
                queues.add(held.queue)
            is_settled = True
        if is_settled:
            self._settled(queues)

    def _flush(self) -> None:
        """Send all that is pending. What one queue's schema refuses keeps no other queue waiting."""
        groups: dict[tuple[ServedQueue, Verb], list[tuple[HeldDelivery, Decision]]] = {}
        for held, decision in self._pending.items():
            groups.setdefault((held.queue, decision.verb), []).append((held, decision))
        refused: FairQueueError | None = None
        for (queue, verb), settlements in groups.items():
            for chunk in self._chunks(settlements):
                try:
                    self._send(queue, verb, chunk)
                except FairQueueError as error:
                    refused = error
        if refused is not None:
            raise refused

    def _chunks(
        self, settlements: list[tuple[HeldDelivery, Decision]]
    ) -> Iterator[list[tuple[HeldDelivery, Decision]]]:
        """The deliveries of one call: so many deliveries, and so many bytes of results, or one that has more."""
        most, most_bytes = self._timings.settle_batch, self._timings.settle_bytes
        if len(settlements) <= most and not any(decision.result for _, decision in settlements):
            yield settlements
            return
        chunk: list[tuple[HeldDelivery, Decision]] = []
        size = 0
        for held, decision in settlements:
            if chunk and (len(chunk) == most or size + decision.result_bytes > most_bytes):
                yield chunk
                chunk, size = [], 0
            chunk.append((held, decision))
            size += decision.result_bytes
        yield chunk

    def _send(self, queue: ServedQueue, verb: Verb, settlements: list[tuple[HeldDelivery, Decision]]) -> None:
        locked = dict(self._writer.write(queue, verb, settlements))
        for held, _ in settlements:
            self._pending.pop(held, None)
            if held not in locked:
                held.lease.held.discard(held)
        for held, decision in locked.items():
            self._locked.append((self._clock() + self._timings.locked_again, held, decision))
            log.warning(
                "worker %s cannot %s message %d of queue %s yet: somebody has it locked (pg_locks tells who)",
                self._name,
                verb.value,
                held.delivery.message_id,
                queue.queue.name,
                extra={"worker": self._name, "queue": queue.queue.name},
            )
        self._poll_when_due(queue, [decision for _, decision in settlements])
        self._settled({queue} if any(self._makes_room(held, decision) for held, decision in settlements) else set())

    def _try_locked(self) -> None:
        """Try the one that has waited longest again, alone."""
        if self._locked and (self._locked[0][0] <= self._clock() or self._give_up_at is not None):
            _, held, decision = self._locked.popleft()
            self._pending[held] = decision
            self._send(held.queue, decision.verb, [(held, decision)])

    def _poll_when_due(self, queue: ServedQueue, decisions: list[Decision]) -> None:
        delays = [decision.delay for decision in decisions if decision.delay]
        if delays:
            queue.polls.poll_at(self._clock() + min(delays).total_seconds())

    def _makes_room(self, held: HeldDelivery, decision: Decision | None) -> bool:
        """Whether a dequeue may find something now: a slot is free, or an ordering key, or the message itself is."""
        if decision is None or held.delivery.holds_slot or held.delivery.ordering_key is not None:
            return True
        # A limit that was set after the dequeue makes the message hold a slot that the dequeue did not know of.
        if self._clock() - held.taken_at > self._timings.may_hold_slot:
            return True
        return decision.verb in _RETURNING and not decision.delay

    def _leave_unsettled(self, left: int) -> None:
        log.error(
            "worker %s leaves %d deliveries unsettled: they come back when their lease ends",
            self._name,
            left,
            extra={"worker": self._name},
        )
