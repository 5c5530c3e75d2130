"""Settler of a worker: one thread settles finished deliveries, in batches of one queue and one verb.

No delivery waits for a batch to fill: each call settles what finished during the call before. After a broken connection
the settler sends the same settlements again. Meanwhile the heartbeat extends the leases of the deliveries.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure, sqlstate_of
from sqlalchemy_fairqueue.errors import FairQueueError, LeaseLost
from sqlalchemy_fairqueue.queue.instrumentation import settled, settling
from sqlalchemy_fairqueue.texts import logged, said
from sqlalchemy_fairqueue.unit_of_work.operations import Verb, settle
from sqlalchemy_fairqueue.worker.connection import LOCKED, DedicatedConnection
from sqlalchemy_fairqueue.worker.handling import fallback, of_own_verb
from sqlalchemy_fairqueue.worker.leases import LOST, Decision
from sqlalchemy_fairqueue.worker.threads import Duty, Looper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.values.messages import Delivery
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

# The encoding of the connection or of the server has no bytes for a character.
_UNTRANSLATABLE = "22P05"
# The role lacks a privilege, for all messages.
_FORBIDDEN = "42501"
_COUNTERS = {Verb.COMPLETE: "completed", Verb.RETRY: "retried", Verb.RELEASE: "released", Verb.BURY: "buried"}


class Settler(Looper):
    """The thread that settles one worker's deliveries. It calls *settled* with queues where a dequeue may find more."""

    def __init__(self, options: WorkerOptions, settled: Callable[[set[ServedQueue]], None]) -> None:
        duty = Duty("settle deliveries", self._step, options.timings.longest_sleep)
        super().__init__("settle", [duty], options, last=self._end)
        self.connection: DedicatedConnection = DedicatedConnection(options, lock_timeout=options.timings.lock_timeout)
        self._settled = settled
        # The waits after an error of one queue's schema. The duty's own backoff would hold up other queues too, since
        # new deliveries do not wake a duty that has failed.
        self._backoff = options.backoff("settle deliveries")
        self._finished: deque[HeldDelivery] = deque()
        # Deliveries that are not settled yet, with 0, or with the time to try again if the message was locked.
        self._pending: dict[HeldDelivery, float] = {}
        # Set by a stop.
        self._give_up_at = 0.0

    def settle(self, held: HeldDelivery, decision: Decision) -> None:
        held.decision = decision
        self._finished.append(held)
        self.event.set()

    @property
    def backlog(self) -> int:
        return len(self._finished) + len(self._pending)

    def stop(self) -> None:
        """Let the thread settle what is left, for about ten seconds at most, and then end."""
        self._give_up_at = self.options.clock() + self.options.timings.settle_at_stop
        super().stop()

    def is_over(self) -> bool:
        return self._stopping and (not self.backlog or self.options.clock() > self._give_up_at)

    def _end(self) -> None:
        if left := self.backlog:
            self.options.log.error("leaves %d deliveries unsettled: they come back when their lease ends", left)
        self.connection.close()

    def _step(self) -> float | None:
        self._gather()
        try:
            self._flush()
        except FairQueueError as error:
            self.options.stats.count("failures")
            return self._backoff.failed(error)
        self._backoff.succeeded()
        # What is left is locked.
        return min(self._pending.values()) - self.options.clock() if self._pending else None

    def _gather(self) -> None:
        ended: list[HeldDelivery] = []
        while self._finished:
            held = self._finished.popleft()
            if not held.decision.sent:
                self._pending[held] = 0.0
                continue
            # The handler's own transaction has settled the delivery, or the delivery is lost.
            if held.decision is LOST:
                self.count_lost([held.delivery])
            else:
                self.count(held.decision.verb, [held])
            ended.append(held)
        if ended:
            self._note_ended(ended)

    def _flush(self) -> None:
        groups: dict[tuple[ServedQueue, Verb], list[HeldDelivery]] = {}
        for held, again_at in self._pending.items():
            if not again_at:
                groups.setdefault((held.queue, held.decision.verb), []).append(held)
        refused: list[FairQueueError] = []
        for (queue, verb), deliveries in groups.items():
            for chunk in self._chunks(deliveries):
                try:
                    self._send(queue, verb, chunk)
                except FairQueueError as error:
                    refused.append(error)
        # Of the locked deliveries, the one that has waited longest comes first.
        locked = next((held for held, again_at in self._pending.items() if again_at), None)
        if locked is not None and (self._pending[locked] <= self.options.clock() or self._stopping):
            self._send(locked.queue, locked.decision.verb, [locked])
        if refused:
            raise refused[0]

    def _chunks(self, deliveries: list[HeldDelivery]) -> Iterator[list[HeldDelivery]]:
        chunk: list[HeldDelivery] = []
        size = 0
        for held in deliveries:
            size += held.decision.result_bytes
            if chunk and (len(chunk) == self.options.timings.settle_batch or size > self.options.timings.settle_bytes):
                yield chunk
                chunk, size = [], held.decision.result_bytes
            chunk.append(held)
        yield chunk

    def _send(self, queue: ServedQueue, verb: Verb, deliveries: list[HeldDelivery]) -> None:
        locked = self.write(queue, verb, deliveries)
        for held in deliveries:
            self._pending.pop(held, None)
        for held in locked:
            self._pending[held] = self.options.clock() + self.options.timings.locked_again
            what = f"cannot be settled by {verb.value} yet: somebody has it locked (pg_locks tells who)"
            held.log(logging.WARNING, what)
        self._note_ended([held for held in deliveries if held not in locked])

    def _note_ended(self, deliveries: list[HeldDelivery]) -> None:
        for held in deliveries:
            held.lease.held.discard(held)
            if held.decision.delay:
                held.queue.polls.poll_at(self.options.clock() + held.decision.delay.total_seconds())
        self._settled({held.queue for held in deliveries if self._makes_room(held)})

    def _makes_room(self, held: HeldDelivery) -> bool:
        decision = held.decision
        if decision is LOST or held.delivery.holds_slot or held.delivery.ordering_key is not None:
            return True
        # A limit that was set after the dequeue makes the message hold a slot that the dequeue did not know of.
        if self.options.clock() - held.taken_at > self.options.timings.may_hold_slot:
            return True
        return decision.verb in {Verb.RETRY, Verb.RELEASE} and not decision.delay

    def write(self, queue: ServedQueue, verb: Verb, deliveries: list[HeldDelivery]) -> list[HeldDelivery]:
        """Settle deliveries, and return those whose message another transaction has locked.

        Raises:
            FairQueueError: The schema does not fit this library, or the role lacks the grant "consumer".
            DBAPIError, OSError: The database is away, could not serialize, or refuses the role access to the schema.
        """
        single = {held.delivery.message_id: held for held in deliveries}
        if len(single) < len(deliveries):
            # The database names lost deliveries by their message ids. If one call settled two deliveries of a message,
            # the id would not tell which of them is lost.
            others = [held for held in deliveries if single[held.delivery.message_id] is not held]
            return self.write(queue, verb, others) + self.write(queue, verb, list(single.values()))
        self.options.stats.flushes += 1
        lost: set[int] = set()
        try:
            # Only deliveries that a handler has begun. Nobody worked on the others, which were only prefetched.
            begun = (held.delivery for held in deliveries if held.took is not None)
            with settling(queue.queue.name, verb.value, lambda: list(begun)):
                self.connection.run(lambda connection: _settle(connection, queue, verb, deliveries))
        except LeaseLost as error:
            lost = self._lost(queue, verb, deliveries, error)
        except (DBAPIError, UnicodeError, _Unsendable) as error:
            # A UnicodeError comes from the driver, which could not encode a text for the server.
            state = _UNTRANSLATABLE if isinstance(error, UnicodeError) else sqlstate_of(error)
            # These errors concern all messages. Any other may concern one message, since a trigger may raise anything.
            is_passing = is_away(error) or is_serialization_failure(error)
            if state == _FORBIDDEN or (state not in LOCKED and is_passing):
                raise
            if state == _UNTRANSLATABLE and sum(held.say_in_ascii() for held in deliveries):
                return self.write(queue, verb, deliveries)
            if len(deliveries) > 1:
                half = len(deliveries) // 2
                return self.write(queue, verb, deliveries[:half]) + self.write(queue, verb, deliveries[half:])
            return deliveries if state in LOCKED else self._refused(deliveries[0], error)
        self.count(verb, [held for held in deliveries if held.delivery.message_id not in lost] if lost else deliveries)
        return []

    def count_lost(self, deliveries: Sequence[Delivery]) -> None:
        self.options.stats.lost += len(deliveries)
        settled("lost", lambda: deliveries)

    def count(self, verb: Verb, deliveries: list[HeldDelivery]) -> None:
        settled(verb.value, lambda: [held.delivery for held in deliveries])
        if verb is Verb.BURY:
            for held in deliveries:
                attempt = f"attempt {held.delivery.attempt} of {held.max_attempts}"
                held.log(logging.WARNING, f"is a dead letter now, at {attempt}: {held.decision.reason}")
        # Last, so that whoever sees the figure finds the log line.
        self.options.stats.count(_COUNTERS[verb], len(deliveries))

    def _lost(self, queue: ServedQueue, verb: Verb, deliveries: list[HeldDelivery], error: LeaseLost) -> set[int]:
        """Log lost deliveries, unless their handlers settled them. Return the message ids that *error* names."""
        gone = [held for held in deliveries if held.delivery.message_id in error.message_ids]
        for held in gone:
            if held.delivery.settled:
                held.decision = of_own_verb(Decision(Verb(held.delivery.settled[-1])), held.delivery)
                self.count(held.decision.verb, [held])
        left = [held.delivery for held in gone if not held.delivery.settled]
        lost = [delivery.message_id for delivery in left]
        if lost:
            self.options.log.warning(
                "could not %s %d of %d deliveries of queue %s: somebody else has them, or settled them: %s",
                *(verb.value, len(lost), len(deliveries), queue.queue.name, tuple(lost[:20])),
                extra={"queue": queue.queue.name, "message_ids": tuple(lost)},
            )
            self.count_lost(left)
        return set(error.message_ids)

    def _refused(self, held: HeldDelivery, error: DBAPIError | UnicodeError | _Unsendable) -> list[HeldDelivery]:
        verb, instead = held.decision.verb, fallback(held.decision, held.delivery)
        then = "" if instead is None else f", so the worker tries to {instead.verb.value} it"
        held.log(logging.ERROR, f"cannot be settled by {verb.value}{then}: {logged(error)}")
        held.queue.consumer.forget_leases()
        if instead is None:
            return []
        held.decision = instead
        return self.write(held.queue, instead.verb, [held])


def _settle(connection: Connection, queue: ServedQueue, verb: Verb, deliveries: list[HeldDelivery]) -> None:
    try:
        costs = [held.measured_cost if held.cost is None else held.cost for held in deliveries]
        operations = [
            held.decision.operation(queue.target, held.delivery, cost, held.stop_charging())
            for held, cost in zip(deliveries, costs, strict=True)
        ]
        settle(connection, queue.target, verb, operations)
    except LeaseLost:
        # Commit, since the other deliveries are settled.
        connection.commit()
        raise
    except (DBAPIError, FairQueueError, UnicodeError, OSError):
        raise
    except Exception as error:
        # The connection works, so the parameters are wrong.
        raise _Unsendable(f"{type(error).__name__}: {said(error)}") from error
    connection.commit()


class _Unsendable(Exception):
    """A settlement that could not be converted to what the driver sends."""
