"""Ends deliveries: one thread sends what handlers left, as much at a time as has gathered.

Nothing waits to be batched: what ends while a call is under way goes with the next one. So an idle worker completes at
once, and a busy one a few hundred in a call. What a broken call sent is sent again until it is answered: the token
makes that harmless, and while it is not settled the heartbeat keeps its lease. A message that somebody has locked is
tried again alone, and keeps no other waiting.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.unit_of_work import Verb
from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.logs import log
from sqlalchemy_fairqueue.worker.settlement_writer import SettlementWriter
from sqlalchemy_fairqueue.worker.wake_event import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.decisions import Decision
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.stats import WorkerStats

_RETURNING = (Verb.RETRY, Verb.RELEASE)
# Seconds after which a delivery may hold more than when it was made.
_LONG = 1.0
_MOST = 1000
_FINAL = 10.0
_LOCKED_AGAIN = 1.0


class Settler:
    """The settling part of a worker.

    Args:
        line: Its connection.
        name: The worker's name, for the log.
        stats: Counted here: what became of deliveries.
        settled: Called after each call with the queues in which that may have made room for messages, if any.
    """

    def __init__(
        self, line: DedicatedConnection, name: str, stats: WorkerStats, settled: Callable[[set[ServedQueue]], None]
    ) -> None:
        self._line = line
        self._name = name
        self._stats = stats
        self._settled = settled
        self._sender = SettlementWriter(line, name, stats)
        self._outage = Backoff(log, "settle deliveries", name)
        self._ends: deque[tuple[Context, Decision | None]] = deque()
        # What was not answered yet, and what was locked, each with the time to try it again.
        self._pending: dict[Context, Decision] = {}
        self._locked: deque[tuple[float, Context, Decision]] = deque()
        self._bell = WakeEvent()
        self._give_up_at: float | None = None

    def end(self, context: Context, decision: Decision | None) -> None:
        """A delivery is to end so; None: it is not ours any more. Any thread may call it."""
        self._ends.append((context, decision))
        self._bell.ring()

    @property
    def backlog(self) -> int:
        """How many wait to be settled."""
        return len(self._ends) + len(self._pending)

    def stop(self) -> None:
        """Settle what there is and return, after ten seconds in any case if the database is away."""
        self._give_up_at = monotonic() + _FINAL
        self._bell.ring()

    def run(self) -> None:
        """Settle until stopped."""
        while True:
            try:
                self._gather()
                self._flush()
                self._try_locked()
                self._outage.over()
                wait = self._locked[0][0] - monotonic() if self._locked else None
            except BaseException as error:  # noqa: BLE001 - whatever it is, deliveries wait to be settled
                self._stats.failures += 1
                wait = self._outage.failed(error)
            if self._give_up_at is not None and not self._ends:
                left = len(self._pending) + len(self._locked)
                if not left:
                    break
                if monotonic() > self._give_up_at:
                    self._leave(left)
                    break
            if (wait is None or wait > 0) and not self._ends:
                self._bell.wait(wait)
            elif self._pending and wait is not None:
                # More comes in while the database is away.
                self._bell.wait(wait)
        self._line.close()

    def _gather(self) -> None:
        sources: set[ServedQueue] = set()
        settled = False
        while self._ends:
            context, decision = self._ends.popleft()
            if decision is not None and not decision.sent:
                self._pending[context] = decision
                continue
            # Its own transaction has settled it, or it is not ours any more.
            if decision is None:
                self._stats.lost += 1
            else:
                self._sender.ended(decision.verb, [(context, decision)])
                self._hint(context.source, [decision])
            context.claim.held.discard(context)
            if _makes_room(context, decision):
                sources.add(context.source)
            settled = True
        if settled:
            self._settled(sources)

    def _flush(self) -> None:
        """Send all that is pending. What one queue's schema refuses keeps no other queue waiting."""
        groups: dict[tuple[ServedQueue, Verb], list[tuple[Context, Decision]]] = {}
        for context, decision in self._pending.items():
            groups.setdefault((context.source, decision.verb), []).append((context, decision))
        refused: FairQueueError | None = None
        for (source, verb), endings in groups.items():
            for start in range(0, len(endings), _MOST):
                try:
                    self._send(source, verb, endings[start : start + _MOST])
                except FairQueueError as error:
                    refused = error
        if refused is not None:
            raise refused

    def _send(self, source: ServedQueue, verb: Verb, endings: list[tuple[Context, Decision]]) -> None:
        locked = dict(self._sender.send(source, verb, endings))
        for context, _ in endings:
            self._pending.pop(context, None)
            if context not in locked:
                context.claim.held.discard(context)
        for context, decision in locked.items():
            self._locked.append((monotonic() + _LOCKED_AGAIN, context, decision))
            log.warning(
                "worker %s cannot %s message %d of queue %s yet: somebody has it locked (pg_locks tells who)",
                self._name,
                verb.value,
                context.delivery.message_id,
                source.queue.name,
                extra={"worker": self._name, "queue": source.queue.name},
            )
        self._hint(source, [decision for _, decision in endings])
        self._settled({source} if any(_makes_room(context, decision) for context, decision in endings) else set())

    def _try_locked(self) -> None:
        """Try the one that has waited longest again, alone."""
        if self._locked and (self._locked[0][0] <= monotonic() or self._give_up_at is not None):
            _, context, decision = self._locked.popleft()
            self._pending[context] = decision
            self._send(context.source, decision.verb, [(context, decision)])

    def _hint(self, source: ServedQueue, decisions: list[Decision]) -> None:
        delays = [decision.delay for decision in decisions if decision.delay]
        if delays:
            source.looks.hint(monotonic() + min(delays).total_seconds())

    def _leave(self, left: int) -> None:
        log.error(
            "worker %s leaves %d deliveries unsettled: they come back when their lease ends",
            self._name,
            left,
            extra={"worker": self._name},
        )


def _makes_room(context: Context, decision: Decision | None) -> bool:
    """Whether a dequeue may find something because of this end: a slot is free, or the message itself is."""
    # A limit that was set while it was out makes it hold a slot that the dequeue did not know of.
    if decision is None or context.delivery.holds_slot or monotonic() - context.taken_at > _LONG:
        return True
    return decision.verb in _RETURNING and not decision.delay
