"""Sends what ends deliveries of one queue by one verb, and finds the one that keeps the others from it. No thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.errors import LeaseLost, said
from sqlalchemy_fairqueue.unit_of_work import Verb
from sqlalchemy_fairqueue.unit_of_work.sending import settle
from sqlalchemy_fairqueue.worker.decisions import in_place_of, of_own
from sqlalchemy_fairqueue.worker.logs import log, log_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.decisions import Decision
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.stats import WorkerStats

    Endings = Sequence[tuple[Context, Decision]]

LOCK_TIMEOUT = "200ms"
"""How long a call may wait for a message that somebody has locked: the others of the call must not wait with it."""
# A statement_timeout that is shorter says no more.
_LOCKED = {"55P03", "57014"}
# The connection's encoding, or the server's, has no bytes for a character.
_UNTRANSLATABLE = "22P05"
# By its class: the call is not what is wrong, and may be tried again. Whatever else the server says is about a message,
# for a trigger may raise anything. None: it said nothing.
_AWAY = {"", "08", "25", "28", "40", "53", "55", "57", "58"}
# The role lacks a privilege, whatever the message.
_FORBIDDEN = "42501"


class SettlementWriter:
    """Sends for one worker.

    Args:
        line: The settler's connection.
        name: The worker's name, for the log.
        stats: Counted here: what became of deliveries.
    """

    def __init__(self, line: DedicatedConnection, name: str, stats: WorkerStats) -> None:
        self._line = line
        self._name = name
        self._stats = stats

    def send(self, source: ServedQueue, verb: Verb, endings: Endings) -> list[tuple[Context, Decision]]:
        """End deliveries; returns those whose message somebody else has locked.

        Raises:
            FairQueueError: The schema does not fit.
            DBAPIError: The database is away.
        """
        settles = [decision.settle(source.target, context.delivery) for context, decision in endings]

        def work(connection: Connection) -> None:
            try:
                settle(connection, source.target, verb, settles)
            except LeaseLost:
                # The others are settled.
                connection.commit()
                raise
            connection.commit()

        self._stats.flushes += 1
        lost: set[int] = set()
        try:
            self._line.run(work)
        except LeaseLost as error:
            lost = self._lost(source, verb, endings, error)
        except (DBAPIError, UnicodeError) as error:
            state = _state(error)
            if state == _FORBIDDEN or (state not in _LOCKED and state[:2] in _AWAY):
                raise
            if state == _UNTRANSLATABLE and (plain := self._in_ascii(source, endings)):
                return self.send(source, verb, plain)
            if len(endings) > 1:
                half = len(endings) // 2
                return self.send(source, verb, endings[:half]) + self.send(source, verb, endings[half:])
            if state in _LOCKED:
                return list(endings)
            return self._refused(source, *endings[0], error)
        self.ended(verb, [one for one in endings if one[0].delivery.message_id not in lost] if lost else endings)
        return []

    def ended(self, verb: Verb, endings: Endings) -> None:
        """These deliveries have ended so: count them, and say which messages are dead letters now."""
        stats = self._stats
        number = len(endings)
        match verb:
            case Verb.COMPLETE:
                stats.completed += number
            case Verb.RETRY:
                # In place of another end, of the last attempt too, of which the database makes a dead letter.
                over = [(context, of_own(verb, context.delivery)) for context, _ in endings]
                over = [one for one in over if one[1].verb is Verb.BURY]
                stats.retried += number - len(over)
                if over:
                    self.ended(Verb.BURY, over)
            case Verb.RELEASE:
                stats.released += number
            case Verb.BURY:
                for context, decision in endings:
                    delivery = context.delivery
                    attempt = f"attempt {delivery.attempt} of {context.max_attempts}"
                    what = f"is a dead letter now, at {attempt}: {decision.reason}"
                    log_message(logging.WARNING, self._name, delivery, what)
                # Last: whoever sees the figure finds the words.
                stats.buried += number

    def _lost(self, source: ServedQueue, verb: Verb, endings: Endings, error: LeaseLost) -> set[int]:
        """Say which are lost. One that its handler has ended by itself is not: it ended so."""
        gone = [one for one in endings if one[0].delivery.message_id in error.message_ids]
        for context, _ in gone:
            if context.delivery.ends:
                own = of_own(Verb(context.delivery.ends[-1]), context.delivery)
                self.ended(own.verb, [(context, own)])
        lost = [context.delivery.message_id for context, _ in gone if not context.delivery.ends]
        if lost:
            log.warning(
                "worker %s could not %s %d of %d deliveries of queue %s: somebody else has them, or settled them: %s",
                self._name,
                verb.value,
                len(lost),
                len(endings),
                source.queue.name,
                tuple(lost[:20]),
                extra={"worker": self._name, "queue": source.queue.name, "message_ids": tuple(lost)},
            )
            self._stats.lost += len(lost)
        return set(error.message_ids)

    def _in_ascii(self, source: ServedQueue, endings: Endings) -> Endings:
        """The same endings in ASCII, if that changes any."""
        plain = [(context, decision.in_ascii()) for context, decision in endings]
        changed = [
            context.delivery.message_id for (context, new), (_, old) in zip(plain, endings, strict=True) if new != old
        ]
        if not changed:
            return []
        log.warning(
            "worker %s keeps what is said of %d message(s) of queue %s in ASCII, for the database's encoding, or the "
            "connection's, has no bytes for it: %s",
            self._name,
            len(changed),
            source.queue.name,
            tuple(changed[:20]),
            extra={"worker": self._name, "queue": source.queue.name, "message_ids": tuple(changed)},
        )
        return plain

    def _refused(
        self, source: ServedQueue, context: Context, decision: Decision, error: DBAPIError | UnicodeError
    ) -> list[tuple[Context, Decision]]:
        """Say so, and end it by the next best: left as it is, it would stay ours as long as the lease lives."""
        instead = in_place_of(decision, context.delivery)
        log.error(
            "worker %s cannot %s message %d of queue %s%s: %s",
            self._name,
            decision.verb.value,
            context.delivery.message_id,
            source.queue.name,
            "" if instead is None else f", tries to {instead.verb.value} it",
            said(error),
            extra={"worker": self._name, "queue": source.queue.name, "message_ids": (context.delivery.message_id,)},
        )
        source.consumer.forget_leases()
        return [] if instead is None else self.send(source, instead.verb, [(context, instead)])


def _state(error: DBAPIError | UnicodeError) -> str:
    """The SQLSTATE; for a text that the connection's encoding has no bytes for that of a server that has none."""
    if isinstance(error, UnicodeError):
        return _UNTRANSLATABLE
    return "" if error.connection_invalidated else str(getattr(error.orig, "sqlstate", None) or "")
