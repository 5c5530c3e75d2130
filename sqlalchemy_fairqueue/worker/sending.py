"""Sends what ends deliveries of one queue by one verb, and finds the one that keeps the others from it. No thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.errors import LeaseLost
from sqlalchemy_fairqueue.unit_of_work import Verb
from sqlalchemy_fairqueue.unit_of_work.sending import settle
from sqlalchemy_fairqueue.worker.decisions import RELEASE, Decision, of_own
from sqlalchemy_fairqueue.worker.logs import log, log_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.lines import Line
    from sqlalchemy_fairqueue.worker.sources import Source
    from sqlalchemy_fairqueue.worker.stats import WorkerStats

    Endings = Sequence[tuple[Context, Decision]]

LOCK_TIMEOUT = "200ms"
"""How long a call may wait for a message that somebody has locked: the others of the call must not wait with it."""
# A statement_timeout that is shorter says no more.
_LOCKED = {"55P03", "57014"}
# The same call would be refused again: bad data and the like.
_REFUSED = {"22", "23", "42", "0A", "54", "XX", "P0"}


class Sender:
    """Sends for one worker.

    Args:
        line: The settler's connection.
        name: The worker's name, for the log.
        stats: Counted here: what became of deliveries.
    """

    def __init__(self, line: Line, name: str, stats: WorkerStats) -> None:
        self._line = line
        self._name = name
        self._stats = stats

    def send(self, source: Source, verb: Verb, endings: Endings) -> list[tuple[Context, Decision]]:
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
        except DBAPIError as error:
            state = str(getattr(error.orig, "sqlstate", None) or "")
            if error.connection_invalidated or (state not in _LOCKED and state[:2] not in _REFUSED):
                raise
            if len(endings) > 1:
                half = len(endings) // 2
                return self.send(source, verb, endings[:half]) + self.send(source, verb, endings[half:])
            if state in _LOCKED:
                return list(endings)
            return self._refused(source, verb, endings[0][0], error)
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
                stats.retried += number
            case Verb.RELEASE:
                stats.released += number
            case Verb.BURY:
                stats.buried += number
                for context, decision in endings:
                    delivery = context.delivery
                    attempt = f"attempt {delivery.attempt} of {context.max_attempts}"
                    what = f"is a dead letter now, at {attempt}: {decision.reason}"
                    log_message(logging.WARNING, self._name, delivery, what)

    def _lost(self, source: Source, verb: Verb, endings: Endings, error: LeaseLost) -> set[int]:
        """Say which are lost. One that its handler has ended by itself is not: it ended so."""
        gone = [one for one in endings if one[0].delivery.message_id in error.message_ids]
        for context, _ in gone:
            if context.delivery.ends:
                own = of_own(Verb(context.delivery.ends[-1]), context.delivery)
                self.ended(own.verb, [(context, own)])
        lost = [context.delivery.message_id for context, _ in gone if not context.delivery.ends]
        if lost:
            self._stats.lost += len(lost)
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
        return set(error.message_ids)

    def _refused(
        self, source: Source, verb: Verb, context: Context, error: DBAPIError
    ) -> list[tuple[Context, Decision]]:
        log.error(
            "worker %s cannot %s message %d of queue %s: %s",
            self._name,
            verb.value,
            context.delivery.message_id,
            source.queue.name,
            # No parameters: they may be nobody's business.
            error.orig,
            extra={"worker": self._name, "queue": source.queue.name, "message_ids": (context.delivery.message_id,)},
        )
        # Left as it is, it would stay ours as long as the lease lives.
        source.consumer.use_lease(None)
        return [] if verb is Verb.RELEASE else self.send(source, Verb.RELEASE, [(context, RELEASE)])
