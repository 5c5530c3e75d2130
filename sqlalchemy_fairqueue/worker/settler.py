"""Settler of a worker: one thread settles finished deliveries, in batches of one queue and one verb.

No delivery waits for a batch to fill: each call settles all that finished during the last one. After a broken
connection the settler sends the same settlements again until the server answers. The tokens make that harmless, and the
heartbeat extends the lease until then.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError

from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure, sqlstate_of
from sqlalchemy_fairqueue.errors import FairQueueError, LeaseLost
from sqlalchemy_fairqueue.queue.instrumentation import settled, settling
from sqlalchemy_fairqueue.texts import logged, said
from sqlalchemy_fairqueue.unit_of_work.operations import Verb, settle
from sqlalchemy_fairqueue.worker.handling import fallback, of_own_verb
from sqlalchemy_fairqueue.worker.threads import Duty, Looper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.values.messages import Delivery
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.handling import Decision
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

    Settlements = Sequence[tuple[HeldDelivery, Decision]]

# A lock_timeout, or a statement_timeout that is shorter.
_LOCKED = {"55P03", "57014"}
# The connection's encoding, or the server's, has no bytes for a character.
_UNTRANSLATABLE = "22P05"
# A value that its type does not allow.
_INVALID = "22023"
# The role lacks a privilege, for all messages.
_FORBIDDEN = "42501"
_RETURNING = (Verb.RETRY, Verb.RELEASE)


class Settler(Looper):
    """The thread that settles the deliveries of one worker. It tells *settled* which queues may have room now."""

    def __init__(
        self,
        connection: DedicatedConnection,
        options: WorkerOptions,
        settled: Callable[[set[ServedQueue]], None],
    ) -> None:
        duty = Duty("settle deliveries", self._step, options.timings.longest_sleep)
        super().__init__("settle", [duty], options, last=self._end)
        self._connection = connection
        self._log = options.log
        self._settled = settled
        self._timings = options.timings
        self._backoff = options.backoff("settle deliveries")
        self._finished: deque[tuple[HeldDelivery, Decision | None]] = deque()
        # Deliveries whose call was not answered yet.
        self._pending: dict[HeldDelivery, Decision] = {}
        # Deliveries whose message was locked, each with the time to try it again.
        self._locked: deque[tuple[float, HeldDelivery, Decision]] = deque()
        self._give_up_at: float | None = None
        # No call before this time, since the database is away.
        self._retry_at = 0.0

    def settle(self, held: HeldDelivery, decision: Decision | None) -> None:
        """Settle a delivery; None means that it is lost. Any thread may call it."""
        self._finished.append((held, decision))
        self._event.set()

    @property
    def backlog(self) -> int:
        return len(self._finished) + len(self._pending)

    def stop(self) -> None:
        """Settle what is left and stop; give up after ten seconds, if the database is away."""
        self._give_up_at = self._clock() + self._timings.settle_at_stop
        self._retry_at = 0.0
        super().stop()

    def is_over(self) -> bool:
        if self._give_up_at is None or self._finished:
            return False
        return not (self._pending or self._locked) or self._clock() > self._give_up_at

    def _end(self) -> None:
        if left := len(self._pending) + len(self._locked):
            self._log.error("leaves %d deliveries unsettled: they come back when their lease ends", left)
        self._connection.close()

    def _step(self) -> float | None:
        """Send what is pending, unless the database is away. Return the seconds until the next call, or None."""
        try:
            self._gather()
            if (wait := self._retry_at - self._clock()) > 0:
                return wait
            self._flush()
            self._try_locked()
            self._backoff.succeeded()
        except BaseException as error:  # noqa: BLE001 - after any failure deliveries wait to be settled
            self._stats.failed()
            wait = self._backoff.failed(error)
            # An error of one queue's schema must not hold up other queues.
            if not isinstance(error, FairQueueError):
                self._retry_at = self._clock() + wait
            return wait
        return self._locked[0][0] - self._clock() if self._locked else None

    def _gather(self) -> None:
        ended: list[tuple[HeldDelivery, Decision | None]] = []
        while self._finished:
            held, decision = self._finished.popleft()
            if decision is not None and not decision.sent:
                self._pending[held] = decision
                continue
            # The handler's own transaction has settled the delivery, or the delivery is lost.
            if decision is None:
                self.count_lost([held.delivery])
            else:
                self.count(decision.verb, [(held, decision)])
            ended.append((held, decision))
        if ended:
            self._note_ended(ended)

    def _flush(self) -> None:
        """Send all that is pending. The FairQueueError of one queue is raised when the others are settled."""
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
        """Yield the deliveries of each call, bounded by number and by bytes of results; one result may be larger."""
        most, most_bytes = self._timings.settle_batch, self._timings.settle_bytes
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
        locked = dict(self.write(queue, verb, settlements))
        for held, _ in settlements:
            self._pending.pop(held, None)
        for held, decision in locked.items():
            self._locked.append((self._clock() + self._timings.locked_again, held, decision))
            what = f"cannot be settled by {verb.value} yet: somebody has it locked (pg_locks tells who)"
            self._log.message(logging.WARNING, held.delivery, what)
        self._note_ended([one for one in settlements if one[0] not in locked])

    def _try_locked(self) -> None:
        """Try the longest waiting locked message again, alone, so that others do not wait for it."""
        if self._locked and (self._locked[0][0] <= self._clock() or self._give_up_at is not None):
            _, held, decision = self._locked.popleft()
            self._pending[held] = decision
            self._send(held.queue, decision.verb, [(held, decision)])

    def _note_ended(self, deliveries: Sequence[tuple[HeldDelivery, Decision | None]]) -> None:
        """Forget deliveries, and let their queues be polled if that made room, and when a message is due again."""
        queues: set[ServedQueue] = set()
        for held, decision in deliveries:
            held.lease.held.discard(held)
            if decision is not None and decision.delay:
                held.queue.polls.poll_at(self._clock() + decision.delay.total_seconds())
            if self._makes_room(held, decision):
                queues.add(held.queue)
        self._settled(queues)

    def _makes_room(self, held: HeldDelivery, decision: Decision | None) -> bool:
        """Return whether a dequeue may find something now: a free slot or ordering key, or the returned message."""
        if decision is None or held.delivery.holds_slot or held.delivery.ordering_key is not None:
            return True
        # A limit that was set after the dequeue makes the message hold a slot that the dequeue did not know of.
        if self._clock() - held.taken_at > self._timings.may_hold_slot:
            return True
        return decision.verb in _RETURNING and not decision.delay

    def write(self, queue: ServedQueue, verb: Verb, settlements: Settlements) -> list[tuple[HeldDelivery, Decision]]:
        """Settle deliveries, and return those whose message another transaction has locked.

        Raises:
            FairQueueError: The schema does not fit this library.
            DBAPIError: The database is away, or the role may not settle.
        """
        ordered = sorted(settlements, key=lambda one: one[0].delivery.deliveries)
        newest = {one[0].delivery.message_id: one for one in ordered}
        if len(newest) < len(settlements):
            # The database reports messages. If a message has two deliveries, it would not tell which is lost.
            older = [one for one in settlements if newest[one[0].delivery.message_id] is not one]
            return self.write(queue, verb, older) + self.write(queue, verb, list(newest.values()))
        self._stats.flushes += 1
        lost: set[int] = set()
        try:
            # Prefetched deliveries without a handler were not worked on.
            with settling(queue.queue.name, verb.value, lambda: [one.delivery for one, _ in settlements if one.began]):
                self._connection.run(lambda connection: _settle(connection, queue, verb, settlements))
        except LeaseLost as error:
            lost = self._lost(queue, verb, settlements, error)
        except (DBAPIError, UnicodeError, _Unsendable) as error:
            state = _state(error)
            # The call is right. Any other error concerns a message, since a trigger may raise anything.
            is_passing = is_away(error) or is_serialization_failure(error)
            if state == _FORBIDDEN or (state not in _LOCKED and is_passing):
                raise
            if state == _UNTRANSLATABLE and (plain := self._in_ascii(queue, settlements)):
                return self.write(queue, verb, plain)
            if len(settlements) > 1:
                half = len(settlements) // 2
                return self.write(queue, verb, settlements[:half]) + self.write(queue, verb, settlements[half:])
            if state in _LOCKED:
                return list(settlements)
            return self._refused(queue, *settlements[0], error)
        self.count(
            verb, [one for one in settlements if one[0].delivery.message_id not in lost] if lost else settlements
        )
        return []

    def count_lost(self, deliveries: Sequence[Delivery]) -> None:
        self._stats.lost += len(deliveries)
        settled("lost", lambda: deliveries)

    def count(self, verb: Verb, settlements: Settlements) -> None:
        """Count settled deliveries, and log new dead letters."""
        stats = self._stats
        number = len(settlements)
        if verb is not Verb.RETRY:
            settled(verb.value, lambda: [held.delivery for held, _ in settlements])
        match verb:
            case Verb.COMPLETE:
                stats.completed += number
            case Verb.RETRY:
                # As a fallback it may be the last attempt, and then the database makes a dead letter.
                over = [(held, of_own_verb(verb, held.delivery)) for held, _ in settlements]
                over = [one for one in over if one[1].verb is Verb.BURY]
                stats.retried += number - len(over)
                dead = {id(held) for held, _ in over}
                settled(verb.value, lambda: [held.delivery for held, _ in settlements if id(held) not in dead])
                if over:
                    self.count(Verb.BURY, over)
            case Verb.RELEASE:
                stats.released += number
            case Verb.BURY:
                for held, decision in settlements:
                    attempt = f"attempt {held.delivery.attempt} of {held.max_attempts}"
                    what = f"is a dead letter now, at {attempt}: {decision.reason}"
                    self._log.message(logging.WARNING, held.delivery, what)
                # Last, so that whoever sees the figure finds the log line.
                stats.buried += number

    def _lost(self, queue: ServedQueue, verb: Verb, settlements: Settlements, error: LeaseLost) -> set[int]:
        """Log lost deliveries, unless their handlers settled them. Return the ids that the call did not settle."""
        gone = [held for held, _ in settlements if held.delivery.message_id in error.message_ids]
        for held in gone:
            if held.delivery.settled:
                own = of_own_verb(Verb(held.delivery.settled[-1]), held.delivery)
                self.count(own.verb, [(held, own)])
        left = [held.delivery for held in gone if not held.delivery.settled]
        lost = [delivery.message_id for delivery in left]
        if lost:
            what = f"could not {verb.value} {len(lost)} of {len(settlements)} deliveries"
            self._warn(queue, lost, what, "somebody else has them, or settled them")
            self.count_lost(left)
        return set(error.message_ids)

    def _in_ascii(self, queue: ServedQueue, settlements: Settlements) -> Settlements:
        plain = [(held, decision.in_ascii()) for held, decision in settlements]
        changed = [held.delivery.message_id for held, decision in settlements if decision != decision.in_ascii()]
        if not changed:
            return []
        why = "the database's encoding, or the connection's, has no bytes for it otherwise"
        self._warn(queue, changed, f"keeps in ASCII what is said of {len(changed)} message(s)", why)
        return plain

    def _warn(self, queue: ServedQueue, message_ids: list[int], what: str, why: str) -> None:
        name = queue.queue.name
        extra = {"queue": name, "message_ids": tuple(message_ids)}
        self._log.warning("%s of queue %s: %s: %s", what, name, why, tuple(message_ids[:20]), extra=extra)

    def _refused(
        self, queue: ServedQueue, held: HeldDelivery, decision: Decision, error: DBAPIError | UnicodeError | _Unsendable
    ) -> list[tuple[HeldDelivery, Decision]]:
        """Log the refusal, and settle by the next best verb, since the message would otherwise stay leased."""
        instead = fallback(decision, held.delivery)
        then = "" if instead is None else f", so the worker tries to {instead.verb.value} it"
        what = f"cannot be settled by {decision.verb.value}{then}: {logged(error)}"
        self._log.message(logging.ERROR, held.delivery, what)
        queue.consumer.forget_leases()
        return [] if instead is None else self.write(queue, instead.verb, [(held, instead)])


def _settle(connection: Connection, queue: ServedQueue, verb: Verb, settlements: Settlements) -> None:
    try:
        operations = [
            decision.operation(
                queue.target,
                held.delivery,
                held.measured_cost if held.cost is None else held.cost,
                held.stop_charging(),
            )
            for held, decision in settlements
        ]
        settle(connection, queue.target, verb, operations)
    except LeaseLost:
        # The other deliveries are settled.
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


def _state(error: DBAPIError | UnicodeError | _Unsendable) -> str:
    """Return an error's SQLSTATE, or the one that fits if the driver refused to send something."""
    if isinstance(error, UnicodeError):
        return _UNTRANSLATABLE
    if isinstance(error, _Unsendable):
        return _INVALID
    if error.connection_invalidated:
        return ""
    # asyncpg raises ValueError for a bad parameter.
    is_refused = isinstance(error, (DataError, ProgrammingError)) or isinstance(
        getattr(error.orig, "__cause__", None), ValueError
    )
    return sqlstate_of(error) or (_INVALID if is_refused else "")
