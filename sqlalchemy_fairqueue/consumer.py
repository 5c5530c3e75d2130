"""The dequeuing side of a queue in one process: what has to be remembered between two calls of dequeue.

That is a lease that can be used again, hints where the last scan found something, and whether more signals were
waiting. All of it may be forgotten at any time; a connection error forgets it.
"""

from __future__ import annotations

import os
import secrets
import socket
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.codecs import decoded, headers_of
from sqlalchemy_fairqueue.errors import translated
from sqlalchemy_fairqueue.installation import check_installed
from sqlalchemy_fairqueue.times import duration, instant, microseconds
from sqlalchemy_fairqueue.values import Batch, Delivery, Lease, Once

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.codecs import Codec
    from sqlalchemy_fairqueue.unit_of_work import Target

_CHUNK = 10_000
_CHUNKS = 5
_ALL = -1
# For callers that ask for a long lease and a short one in turn.
_LEASES = 4
# What a dequeue is to be told of the last one.
_HINTS = 6


def _literal(numbers: list[int | None] | None) -> str | None:
    """An array as PostgreSQL writes it: the driver takes longer for it than for all else of a call."""
    if numbers is None:
        return None
    return f"{{{','.join('null' if number is None else str(number) for number in numbers)}}}"


class Consumer:
    """One consumer of one queue on one engine. Threads may share it; a forked child starts anew.

    Args:
        target: The queue.
        codec: Decodes the payloads.
        name: Shown beside its leases; None: host, process and a random part.
        keep: Called with each lease that something was delivered under and with the time, on time.monotonic, before
            that dequeue was sent; gives the lease to put on the deliveries. For workers, which watch over their leases.
    """

    def __init__(
        self,
        target: Target,
        codec: Codec,
        name: str | None = None,
        keep: Callable[[Lease, float], Lease] | None = None,
    ) -> None:
        self._target = target
        self._codec = codec
        self._given_name = name
        self._keep = keep
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self.name = self._given_name or f"{socket.gethostname()}:{self._process}:{secrets.token_hex(4)}"
        # By how long they were asked for, the last one first; replaced whole, for threads may share them.
        self._leases: tuple[tuple[timedelta, int], ...] = ()
        self._hints: list[int | None] | None = None
        self._signals_after: int | None = None

    @property
    def lease_id(self) -> int | None:
        """The lease that the last dequeue had, and the next one may use again if it asks for as long."""
        return self._leases[0][1] if self._leases else None

    def forget_leases(self, *lease_ids: int) -> None:
        """Let dequeues make leases of their own, instead of these or, with none named, of any that there were."""
        self._leases = tuple(one for one in self._leases if lease_ids and one[1] not in lease_ids)

    def hear(self, connection: Connection) -> None:
        """Apply signals that wait, some chunks of them, without dequeuing: for a heartbeat while all are at work.

        Not during a dequeue.
        """
        self._hear(connection, self._signals_after or 0, _CHUNKS)

    def dequeue(self, connection: Connection, limit: int, lease: timedelta) -> Batch:
        """One dequeue, committed when it returns; first the signals that the last call left waiting are heard."""
        if self._process != os.getpid():
            self._forget()
        check_installed(connection, self._target.schema)
        try:
            if (after := self._signals_after) is not None:
                self._hear(connection, after)
            batch = self._call(connection, limit, lease)
            if not batch and (after := self._signals_after) is not None:
                self._hear(connection, after)
                batch = self._call(connection, limit, lease)
        except BaseException:
            self._forget()
            raise
        return batch

    def _hear(self, connection: Connection, after: int, chunks: int = _ALL) -> None:
        seen = _CHUNK
        while seen == _CHUNK and chunks:
            chunks -= 1
            with translated(f"hear the signals of queue {self._target.queue!r}"):
                row = connection.execute(
                    statements.hear(self._target.schema), {"queue": self._target.queue, "after": after, "limit": _CHUNK}
                ).one()
                connection.commit()
            seen = row.seen
            after = row.last_id
            hints = self._hints
            if row.scheduled_at is not None and hints is not None and hints[0] is not None:
                self._hints = [min(hints[0], row.scheduled_at), *hints[1:]]
        self._signals_after = after if seen == _CHUNK else None

    def _call(self, connection: Connection, limit: int, lease: timedelta) -> Batch:
        sent_at = monotonic()
        # One that was made for longer would keep from others for longer what is taken under it.
        lease_id = next((known for made_for, known in self._leases if made_for == lease), None)
        with translated(f"dequeue from queue {self._target.queue!r}"):
            *rows, about = connection.execute(
                statements.dequeue(self._target.schema),
                {
                    "queue": self._target.queue,
                    "limit": limit,
                    "lease": microseconds(lease),
                    "consumer": self.name,
                    "lease_id": lease_id,
                    "hints": _literal(self._hints),
                },
            ).all()
            connection.commit()
        self._remember(lease, about.lease_id, lease_id)
        hints = about.hints or []
        self._hints = hints[:_HINTS] or None
        self._signals_after = about.signals_after
        due_in = None if about.due_in is None else duration(about.due_in)
        if not rows:
            return Batch([], due_in)
        holds_slot = hints[_HINTS:] != [0]
        held = Lease(about.lease_id, self.name, instant(about.lease_expires_at))
        if self._keep is not None:
            held = self._keep(held, sent_at)
        return Batch([self._delivery(row, held, holds_slot=holds_slot) for row in rows], due_in)

    def _remember(self, lease: timedelta, lease_id: int | None, asked: int | None) -> None:
        leases = self._leases
        if asked is not None and asked == lease_id and all(known != asked for _, known in leases):
            # Forgotten while the call was under way: somebody extended it, or knows that it is lost.
            return
        others = tuple(one for one in leases if one[0] != lease)[: _LEASES - 1]
        self._leases = others if lease_id is None else ((lease, lease_id), *others)

    def _delivery(self, row: Row[Any], lease: Lease, *, holds_slot: bool) -> Delivery:
        headers, refused = headers_of(row.headers)
        return Delivery(
            message_id=row.message_id,
            queue=self._target.queue,
            channel=row.channel,
            kind=row.kind,
            content=row.content,
            headers=headers,
            attempt=row.attempt,
            max_attempts=row.max_attempts,
            enqueued_at=instant(row.enqueued_at),
            lease=lease,
            deliveries=row.deliveries,
            row_id=row.row_id,
            decoded=refused or Once(partial(decoded, self._codec, row.content)),
            holds_slot=holds_slot,
        )
