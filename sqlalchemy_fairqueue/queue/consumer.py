"""Consumers of a queue: the leases that a process remembers, so that its next dequeue can use them again.

Dequeues are correct without this memory, so after an error the consumer forgets all of it.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.deliveries import (
    SetAside,
    delivered,
    hear_signals,
    is_about_data,
    take_messages,
    take_more,
    token_of,
)
from sqlalchemy_fairqueue.database.installation import check_installed
from sqlalchemy_fairqueue.texts import clean, logged, shortened
from sqlalchemy_fairqueue.values.messages import Deliveries, Delivery, Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.codecs import Codec
    from sqlalchemy_fairqueue.database.calls import Target

log = logging.getLogger("sqlalchemy_fairqueue.queue")

_OUTCOMES = {
    "dead": "is a dead letter now",
    "paused": "stays, and the channel is paused; cancel or mend it, then resume the channel",
}
_MOST_REASON = 150
_CHUNKS = 5
# How many leases to remember: several, for callers that alternate between a long and a short lease.
_LEASES = 4
_SHARED = ("queue", "lease", "holds_slot", "is_timed", "keeps_result")


class Consumer:
    """One consumer of one queue on one engine. Threads may share it; a forked child starts anew.

    The database stores *name* with each lease. If *keep* is given, a dequeue that took messages calls *keep* with their
    Lease and the ``time.monotonic()`` from before the dequeue; the deliveries then carry the Lease that *keep* returns.
    ``is_held_up`` says whether the last dequeue found something due that other transactions have locked.
    """

    def __init__(
        self, target: Target, codec: Codec, name: str | None = None, keep: Callable[[Lease, float], Lease] | None = None
    ) -> None:
        self._target = target
        self._codec = codec
        self._given_name = name
        self._keep = keep
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self.name: str = self._given_name or f"{socket.gethostname()}:{self._process}:{secrets.token_hex(4)}"
        # Leases with their durations, the last one first. Replaced as a whole, since threads may share them.
        self._leases: tuple[tuple[timedelta, int], ...] = ()
        self.is_held_up: bool = False

    @property
    def lease_id(self) -> int | None:
        return self._leases[0][1] if self._leases else None

    def lease_ids(self) -> list[int]:
        return [lease_id for _, lease_id in self._leases]

    def forget_leases(self, *lease_ids: int) -> None:
        """Forget these leases, or all if none is named, so that the next dequeue makes a new lease."""
        self._leases = tuple(one for one in self._leases if lease_ids and one[1] not in lease_ids)

    def hear(self, connection: Connection) -> None:
        """Apply up to 5,000 waiting signals, for a worker that does not dequeue since all of its handlers are busy."""
        for _ in range(_CHUNKS):
            has_more = hear_signals(connection, self._target)
            connection.commit()
            if not has_more:
                return

    def dequeue(self, connection: Connection, limit: int, lease: timedelta, max_bytes: int | None = None) -> Deliveries:
        """Dequeue and commit. The call buries a message that makes it fail, or pauses its channel, and tries again."""
        if self._process != os.getpid():
            self._forget()
        check_installed(connection, self._target.schema)
        try:
            known: set[SetAside] = set()
            while True:
                try:
                    return self._call(connection, limit, lease, max_bytes)
                except DBAPIError as error:
                    if not is_about_data(error):
                        raise
                    # Each bad row is set aside once. If no new bad row is found, the error has another cause.
                    connection.rollback()
                    found = self._set_aside(connection, limit, logged(error))
                    if known.issuperset(found):
                        raise
                    known.update(found)
        except BaseException:
            self._forget()
            raise

    def take_more(
        self, connection: Connection, first: Delivery, *, limit: int, max_cost: int | None, max_bytes: int
    ) -> list[Delivery]:
        """Take messages of the same kind that follow *first* in its channel, under the lease of *first*, and commit."""
        rows = take_more(connection, self._target, token_of(first), limit=limit, max_cost=max_cost, max_bytes=max_bytes)
        connection.commit()
        return self._delivered(connection, limit, rows, {name: getattr(first, name) for name in _SHARED})

    def _set_aside(
        self,
        connection: Connection,
        limit: int,
        problem: str,
        lease_id: int | None = None,
        unreadable: Sequence[int] | None = None,
    ) -> list[SetAside]:
        """Bury messages that make dequeues fail, or those with ids *unreadable*; if that fails, pause the channel."""
        ids, reason = (None, None) if unreadable is None else (list(unreadable), problem)
        doing = "set aside what cannot be delivered in"
        call = self._target.call("fq_set_aside", doing, limit=limit, lease_id=lease_id, ids=ids, reason=reason)
        found = list(map(SetAside._make, call.rows(connection)))
        connection.commit()
        for one in found:
            what = f"channel {one.channel_id}" if one.message_id is None else f"message {one.message_id}"
            log.error(
                "queue %s: a dequeue failed: %s; %s %s: %s",
                *(clean(self._target.queue), clean(problem), what, _OUTCOMES[one.outcome]),
                clean(shortened(one.reason, _MOST_REASON)),
                extra={"queue": self._target.queue, "message_id": one.message_id, "channel_id": one.channel_id},
            )
        return found

    def _delivered(
        self, connection: Connection, limit: int, rows: Sequence[Sequence[Any]], shared: Mapping[str, Any]
    ) -> list[Delivery]:
        deliveries, unreadable = delivered(rows, self._codec, shared)
        if unreadable:
            ids, problems = zip(*unreadable, strict=True)
            self._set_aside(connection, limit, problems[0], shared["lease"].id, ids)
        return deliveries

    def _call(self, connection: Connection, limit: int, lease: timedelta, max_bytes: int | None) -> Deliveries:
        sent_at = monotonic()
        # Only a lease of the same duration is used again: after a crash, messages under a longer lease come back later.
        lease_id = next((known for made_for, known in self._leases if made_for == lease), None)
        dequeued = take_messages(
            connection,
            self._target,
            limit=limit,
            lease=lease,
            consumer=self.name,
            lease_id=lease_id,
            max_bytes=max_bytes,
        )
        connection.commit()
        self._remember(lease, dequeued.lease_id, lease_id)
        self.is_held_up = dequeued.is_held
        if (held := dequeued.lease) is None:
            return Deliveries([], dequeued.due_in)
        if self._keep is not None:
            held = self._keep(held, sent_at)
        found = self._delivered(connection, limit, dequeued.rows, {"lease": held, **dequeued.shared})
        return Deliveries(found, dequeued.due_in if found else timedelta())

    def _remember(self, lease: timedelta, lease_id: int | None, asked: int | None) -> None:
        leases = self._leases
        if asked is not None and asked == lease_id and all(known != asked for _, known in leases):
            # Another thread has forgotten the lease during the call, after an extension or a loss of the lease.
            return
        others = tuple(one for one in leases if one[0] != lease)[: _LEASES - 1]
        self._leases = others if lease_id is None else ((lease, lease_id), *others)
