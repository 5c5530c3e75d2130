"""Delivery methods of a queue: dequeue messages, extend their leases, settle their deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection, AsyncEngine
from sqlalchemy_fairqueue.database.deliveries import extend_lease, find_holder, token_of
from sqlalchemy_fairqueue.database.engines import on, refused, run
from sqlalchemy_fairqueue.database.installation import check_installed
from sqlalchemy_fairqueue.errors import InvalidArgument, LeaseLost
from sqlalchemy_fairqueue.queue.base import QueueBase, RecordedWhere, on_engine, recorded
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.queue.results import given_result
from sqlalchemy_fairqueue.unit_of_work.operations import Settle, Verb, mark_settled, settle
from sqlalchemy_fairqueue.unit_of_work.sessions import session_of
from sqlalchemy_fairqueue.values.checks import check_count, check_duration, check_text
from sqlalchemy_fairqueue.values.messages import MOST_COST, Deliveries, Delivery

if TYPE_CHECKING:
    Held = Delivery | Iterable[Delivery]

LEASE = timedelta(seconds=30)
MAX_BYTES = 64 * 1024 * 1024
"""The default of ``dequeue(max_bytes=)``: most bytes of contents and headers in a batch."""
MOST_BYTES = 2**40
_LEAST = timedelta(microseconds=1)


class DeliveryMethods(QueueBase):
    """dequeue and extend, and the verbs that settle a delivery: complete, retry, release and bury."""

    def _begin(self) -> None:
        super()._begin()
        self._consumers: WeakKeyDictionary[Engine, Consumer] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_consumers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._consumers = WeakKeyDictionary()

    @on_engine
    def dequeue(
        self, engine: Engine, *, limit: int = 1, lease: timedelta = LEASE, max_bytes: int = MAX_BYTES
    ) -> Deliveries:
        """Lease up to *limit* (1 to 100,000) ready messages, channels in turn. Return deliveries in the order of turns.

        The lease is committed when the call returns. It lasts at least *lease* (up to 365 days). Before it ends, the
        caller must complete, retry, release or bury each delivery. After its end ``extend`` raises LeaseLost; these
        four verbs do so once a dequeue has reclaimed the message. The call runs READ COMMITTED transactions of its own,
        one statement each, and waits 5 ms at most for a lock. ``due_in`` of the result says when to poll again.

        Args:
            max_bytes: Most bytes of contents and headers to take, 64 MiB by default. The batch ends before the message
                that would exceed it, with ``due_in`` zero. A message that is larger by itself comes alone.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload={"file": "a.pdf"})
            >>> batch = queue.dequeue(engine, limit=100, lease=timedelta(minutes=1))
            >>> [delivery.payload for delivery in batch]
            [{'file': 'a.pdf'}]
        """
        given: Any = engine
        if not isinstance(given, (Engine, AsyncEngine)):
            if session_of(given) is not None or isinstance(given, (Connection, AsyncConnection)):
                raise InvalidArgument(
                    f"dequeue got a {type(given).__name__}: a lease must be committed before the work begins, "
                    "so that it needs a transaction of its own; give an engine"
                )
            raise refused(given, "an engine")
        check_count("limit", limit, 1, 100_000)
        check_count("max_bytes", max_bytes, 1, MOST_BYTES)
        lease = check_duration("lease", lease, _LEAST)

        def dequeue(engine: Engine) -> Deliveries:
            consumer = self._consumer(engine)
            return run(
                engine, lambda connection: consumer.dequeue(connection, limit, lease, max_bytes), calls_only=True
            )

        return on(engine, dequeue)

    @recorded
    def complete(self, where: RecordedWhere, deliveries: Held, *, cost: int | None = None, result: Any = None) -> None:
        """Settle deliveries whose work is done, and delete their messages.

        On a session the COMMIT settles. If a delivery is lost, the COMMIT raises LeaseLost and commits nothing:
        business effects and completion happen together or not at all. On an engine the call settles the deliveries
        that are not lost, and then raises LeaseLost. On a connection the call does the same in the open transaction.
        After the end of the lease a completion still counts, unless the message was reclaimed. In a handler the rule is
        stricter: if the worker knows that one of the deliveries is lost, the call raises LeaseLost at once, on any
        target, and settles none of them. Settlements lock only the messages, ordered by id.

        Args:
            cost: The actual cost of each delivery, 0 to 1,000,000,000 in the unit of ``enqueue(cost=)``. The channel
                pays the difference to the charged cost, or gets it back. None: the charged cost stays; in a queue that
                is fair by seconds, the time that the worker has measured counts.
            result: The value that :meth:`result` returns for each message, if the queue keeps results.

        Raises:
            PayloadError: The result cannot be encoded, or has more than 1,048,576 bytes.
            LeaseLost: The caller no longer holds some of the deliveries; nothing changed for these.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> with Session(engine) as session, session.begin():
            ...     queue.complete(session, queue.dequeue(engine))
        """
        given = None if result is None else given_result(self.codec, result)
        return self._settle(where, Verb.COMPLETE, deliveries, cost=cost, result=given)

    @recorded
    def retry(
        self,
        where: RecordedWhere,
        deliveries: Held,
        *,
        delay: timedelta | None = None,
        error: str | None = None,
        cost: int | None = None,
    ) -> None:
        """Settle failed deliveries: each message is tried again, or becomes a dead letter after its last attempt.

        *error* is kept with the message; for *cost* and exceptions see :meth:`complete`. After a *delay* the message
        goes behind messages of its channel that were due before it. A message with a priority goes to the place of its
        priority. Without a delay the message is due at once, in its old place.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.release(engine, queue.dequeue(engine))  # counts no attempt
            >>> queue.retry(engine, queue.dequeue(engine), delay=timedelta(minutes=1), error="busy")
            >>> queue.message(engine, message_id).attempts
            1
        """
        return self._settle(where, Verb.RETRY, deliveries, delay=delay, error=error, cost=cost)

    @recorded
    def release(self, where: RecordedWhere, deliveries: Held, *, delay: timedelta | None = None) -> None:
        """Give deliveries back without counting the attempt. *delay* and exceptions are as for :meth:`retry`."""
        return self._settle(where, Verb.RELEASE, deliveries, delay=delay)

    @recorded
    def bury(
        self,
        where: RecordedWhere,
        deliveries: Held,
        *,
        reason: str | None = None,
        error: str | None = None,
        cost: int | None = None,
    ) -> None:
        """Move the messages of deliveries to the dead letters. For *cost* and exceptions see :meth:`complete`.

        *reason* says why; None: "buried by its consumer". *error* is a longer text to keep, such as a traceback.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.bury(engine, queue.dequeue(engine), reason="no such customer")
            >>> [letter.reason for letter in queue.dead_letters.list(engine)]
            ['no such customer']
        """
        return self._settle(where, Verb.BURY, deliveries, reason=reason, error=error, cost=cost)

    @on_engine
    def extend(self, engine: Engine, deliveries: Held, *, lease: timedelta = LEASE) -> datetime:
        """Let the leases of deliveries last at least *lease*, a duration, from now. Return the new end.

        The call extends a lease for all of its messages, and never shortens it. It extends several leases one by one,
        each in a transaction of its own, and returns the earliest of their ends. If a lease has ended, the call raises
        LeaseLost, even if no dequeue has reclaimed its messages. If a lease no longer holds one of the deliveries, the
        call raises LeaseLost too. Leases that it extended before stay extended.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> batch = queue.dequeue(engine)
            >>> queue.extend(engine, batch, lease=timedelta(minutes=5)) > datetime.now(UTC) + timedelta(minutes=4)
            True
        """
        if not isinstance(engine, (Engine, AsyncEngine)):
            raise refused(engine, "an engine")
        found = self._deliveries(deliveries)
        if not found:
            raise InvalidArgument("deliveries is empty; there is no lease to extend")
        check_duration("lease", lease, _LEAST)

        def extend(engine: Engine) -> datetime:
            until = run(engine, lambda connection: self._extend(connection, found, lease), calls_only=True)
            # The next dequeue must create a new lease, since the extended one may last longer than that dequeue wants.
            if (consumer := self._consumers.get(engine)) is not None:
                consumer.forget_leases(*(delivery.lease.id for delivery in found))
            return until

        return on(engine, extend)

    def _extend(self, connection: Connection, deliveries: list[Delivery], lease: timedelta) -> datetime:
        check_installed(connection, self.schema)
        expirations: list[datetime] = []
        for lease_id in sorted({delivery.lease.id for delivery in deliveries}):
            same = [delivery for delivery in deliveries if delivery.lease.id == lease_id]
            expires_at = extend_lease(connection, self._target, [token_of(delivery) for delivery in same], lease)
            connection.commit()
            if expires_at is None:
                message_ids = tuple(sorted(delivery.message_id for delivery in same))
                holder = find_holder(connection, self._target, message_ids[0])
                raise LeaseLost(message_ids, lease_id, same[0].lease.expires_at, holder)
            expirations.append(expires_at)
        return min(expirations)

    def _settle(self, where: RecordedWhere, verb: Verb, deliveries: Held, **how: Any) -> None:
        how = {name: value for name, value in how.items() if value is not None}
        if "delay" in how:
            how["delay"] = check_duration("delay", how["delay"])
        if "cost" in how:
            check_count("cost", how["cost"], 0, MOST_COST)
        for name in how.keys() & {"error", "reason"}:
            how[name] = check_text(name, how[name])
        operations = [Settle(self._target, verb, delivery, **how) for delivery in self._deliveries(deliveries)]
        for one in operations:
            if one.delivery.is_timed:
                measured, one.charged = one.delivery.lease.measured(one.delivery)
                one.cost = measured if one.cost is None else one.cost
        if not isinstance(where, (Engine, AsyncEngine)):
            return self._perform(where, list(operations), None)

        def at_once(engine: Engine) -> None:
            run(engine, lambda connection: self._settle_at_once(connection, verb, operations), calls_only=True)

        return on(where, at_once)

    def _settle_at_once(self, connection: Connection, verb: Verb, operations: list[Settle]) -> None:
        try:
            if operations:
                check_installed(connection, self.schema)
                settle(connection, self._target, verb, operations)
        except LeaseLost as error:
            # The other deliveries are settled all the same. Commit here, since not every engine commits each statement.
            connection.commit()
            mark_settled(verb, [one for one in operations if one.delivery.message_id not in error.message_ids])
            raise
        connection.commit()
        mark_settled(verb, operations)

    def _deliveries(self, deliveries: Held) -> list[Delivery]:
        if not isinstance(deliveries, (Delivery, Iterable)):
            raise InvalidArgument(f"deliveries is {deliveries!r:.80}; give a Delivery or several")
        found = [deliveries] if isinstance(deliveries, Delivery) else list(deliveries)
        for delivery in found:
            if not isinstance(delivery, Delivery):
                raise InvalidArgument(f"deliveries has {delivery!r:.80} where a Delivery is needed")
            if delivery.queue != self.name:
                raise InvalidArgument(
                    f"message {delivery.message_id} was delivered by queue {delivery.queue!r}, this is {self.name!r}; "
                    "use that queue"
                )
            if delivery.lease.lost_for(delivery):
                raise LeaseLost((delivery.message_id,), delivery.lease.id, delivery.lease.expires_at)
        return found

    def _consumer(self, engine: Engine) -> Consumer:
        consumer = self._consumers.get(engine)
        if consumer is None:
            consumer = self._consumers.setdefault(engine, Consumer(self._target, self.codec))
        return consumer
