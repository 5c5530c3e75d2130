"""Writer of settlements: one call settles deliveries of one queue by one verb, or each by itself if that call fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError

from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure, sqlstate_of
from sqlalchemy_fairqueue.errors import FairQueueError, LeaseLost
from sqlalchemy_fairqueue.queue.instrumentation import settled, settling
from sqlalchemy_fairqueue.texts import logged, said
from sqlalchemy_fairqueue.unit_of_work.settlements import Verb, settle
from sqlalchemy_fairqueue.worker.decisions import fallback, of_own_verb
from sqlalchemy_fairqueue.worker.telemetry import log, log_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.values.messages import Delivery
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.decisions import Decision
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats

    Settlements = Sequence[tuple[HeldDelivery, Decision]]

# A lock_timeout, or a statement_timeout that is shorter.
_LOCKED = {"55P03", "57014"}
# The connection's encoding, or the server's, has no bytes for a character.
_UNTRANSLATABLE = "22P05"
# A value that is none of its type.
_INVALID = "22023"
# The role lacks a privilege, for all messages.
_FORBIDDEN = "42501"


class SettlementWriter:
    """Writes the settlements of one worker. The settler calls it.

    Args:
        connection: The settler's.
        name: The worker's name, for the log.
        stats: It counts what became of deliveries.
    """

    def __init__(self, connection: DedicatedConnection, name: str, stats: WorkerStats) -> None:
        self._connection = connection
        self._name = name
        self._stats = stats

    def write(self, queue: ServedQueue, verb: Verb, settlements: Settlements) -> list[tuple[HeldDelivery, Decision]]:
        """Settle deliveries; returns those whose message somebody else has locked.

        Raises:
            FairQueueError: The schema does not fit.
            DBAPIError: The database is away.
        """
        ordered = sorted(settlements, key=lambda one: one[0].delivery.deliveries)
        newest = {one[0].delivery.message_id: one for one in ordered}
        if len(newest) < len(settlements):
            # The database names messages. Of two deliveries of one it would not say which is lost.
            older = [one for one in settlements if newest[one[0].delivery.message_id] is not one]
            return self.write(queue, verb, older) + self.write(queue, verb, list(newest.values()))
        self._stats.flushes += 1
        lost: set[int] = set()
        try:
            # Those that were only prefetched were not worked on.
            with settling(queue.queue.name, verb.value, lambda: [one.delivery for one, _ in settlements if one.began]):
                self._connection.run(lambda connection: _send(connection, queue, verb, settlements))
        except LeaseLost as error:
            lost = self._lost(queue, verb, settlements, error)
        except (DBAPIError, UnicodeError, _Unsendable) as error:
            state = _state(error)
            # The call is not what is wrong. All other errors are about a message, for a trigger may raise anything.
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
        """Count deliveries whose lease was lost, or which somebody else settled."""
        self._stats.lost += len(deliveries)
        settled("lost", lambda: deliveries)

    def count(self, verb: Verb, settlements: Settlements) -> None:
        """Count deliveries that are settled so, and log which messages are dead letters now."""
        stats = self._stats
        number = len(settlements)
        if verb is not Verb.RETRY:
            settled(verb.value, lambda: [held.delivery for held, _ in settlements])
        match verb:
            case Verb.COMPLETE:
                stats.completed += number
            case Verb.RETRY:
                # In place of another verb it may be the last attempt, of which the database makes a dead letter.
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
                    log_message(logging.WARNING, self._name, held.delivery, what)
                # Last: a reader who sees the figure finds the log line.
                stats.buried += number

    def _lost(self, queue: ServedQueue, verb: Verb, settlements: Settlements, error: LeaseLost) -> set[int]:
        """Log which are lost. One that its handler has settled by a verb is not: it is settled so."""
        gone = [held for held, _ in settlements if held.delivery.message_id in error.message_ids]
        for held in gone:
            if held.delivery.settled:
                own = of_own_verb(Verb(held.delivery.settled[-1]), held.delivery)
                self.count(own.verb, [(held, own)])
        left = [held.delivery for held in gone if not held.delivery.settled]
        lost = [delivery.message_id for delivery in left]
        if lost:
            log.warning(
                "worker %s could not %s %d of %d deliveries of queue %s: somebody else has them, or settled them: %s",
                self._name,
                verb.value,
                len(lost),
                len(settlements),
                queue.queue.name,
                tuple(lost[:20]),
                extra={"worker": self._name, "queue": queue.queue.name, "message_ids": tuple(lost)},
            )
            self.count_lost(left)
        return set(error.message_ids)

    def _in_ascii(self, queue: ServedQueue, settlements: Settlements) -> Settlements:
        """The same settlements in ASCII, if that changes any."""
        plain = [(held, decision.in_ascii()) for held, decision in settlements]
        changed = [
            held.delivery.message_id for (held, new), (_, old) in zip(plain, settlements, strict=True) if new != old
        ]
        if not changed:
            return []
        log.warning(
            "worker %s keeps what is said of %d message(s) of queue %s in ASCII, for the database's encoding, or the "
            "connection's, has no bytes for it: %s",
            self._name,
            len(changed),
            queue.queue.name,
            tuple(changed[:20]),
            extra={"worker": self._name, "queue": queue.queue.name, "message_ids": tuple(changed)},
        )
        return plain

    def _refused(
        self, queue: ServedQueue, held: HeldDelivery, decision: Decision, error: DBAPIError | UnicodeError | _Unsendable
    ) -> list[tuple[HeldDelivery, Decision]]:
        """Log it, and settle the delivery by the next best verb; else it would stay held as long as the lease lives."""
        instead = fallback(decision, held.delivery)
        log.error(
            "worker %s cannot %s message %d of queue %s, kind %s%s: %s",
            self._name,
            decision.verb.value,
            held.delivery.message_id,
            queue.queue.name,
            held.delivery.kind,
            "" if instead is None else f", tries to {instead.verb.value} it",
            logged(error),
            extra={"worker": self._name, "queue": queue.queue.name, "message_ids": (held.delivery.message_id,)},
        )
        queue.consumer.forget_leases()
        return [] if instead is None else self.write(queue, instead.verb, [(held, instead)])


def _send(connection: Connection, queue: ServedQueue, verb: Verb, settlements: Settlements) -> None:
    try:
        operations = [
            decision.operation(
                queue.target,
                held.delivery,
                held.measured_cost if held.cost is None else held.cost,
                held.stop_charging() if held.delivery.is_timed else None,
            )
            for held, decision in settlements
        ]
        settle(connection, queue.target, verb, operations)
    except LeaseLost:
        # The others are settled.
        connection.commit()
        raise
    except (DBAPIError, FairQueueError, UnicodeError, OSError):
        raise
    except Exception as error:
        # The connection works: it is about what was to be sent.
        raise _Unsendable(f"{type(error).__name__}: {said(error)}") from error
    connection.commit()


class _Unsendable(Exception):
    """A settlement that could not be made into what the driver sends."""


def _state(error: DBAPIError | UnicodeError | _Unsendable) -> str:
    """The SQLSTATE. For what the driver cannot send, it is that of a server that cannot take it."""
    if isinstance(error, UnicodeError):
        return _UNTRANSLATABLE
    if isinstance(error, _Unsendable):
        return _INVALID
    if error.connection_invalidated:
        return ""
    # A ValueError is asyncpg's, of a parameter.
    is_refused = isinstance(error, (DataError, ProgrammingError)) or isinstance(
        getattr(error.orig, "__cause__", None), ValueError
    )
    return sqlstate_of(error) or (_INVALID if is_refused else "")
