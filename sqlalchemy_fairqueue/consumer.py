"""The dequeuing side of a queue in one process: what has to be remembered between two calls of dequeue.

That is a lease that can be used again, hints where the last scan found something, and whether more signals were
waiting. All of it may be forgotten at any time; a connection error forgets it.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import PayloadError, translated
from sqlalchemy_fairqueue.times import duration, instant, microseconds
from sqlalchemy_fairqueue.values import Batch, Delivery, Lease

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Connection, Row

    from sqlalchemy_fairqueue.codecs import Codec
    from sqlalchemy_fairqueue.unit_of_work import Target

_CHUNK = 10_000


class Consumer:
    """One consumer of one queue on one engine. Threads may share it; a forked child starts anew.

    Args:
        target: The queue.
        codec: Decodes the payloads.
        name: Shown beside its leases; None: host, process and a random part.
    """

    def __init__(self, target: Target, codec: Codec, name: str | None = None) -> None:
        self._target = target
        self._codec = codec
        self._given_name = name
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self.name = self._given_name or f"{socket.gethostname()}:{self._process}:{secrets.token_hex(4)}"
        self._lease_id: int | None = None
        self._hints: list[int | None] | None = None
        self._signals_after: int | None = None

    def dequeue(self, connection: Connection, limit: int, lease: timedelta) -> Batch:
        """One dequeue, committed when it returns; first the signals that the last call left waiting are heard."""
        if self._process != os.getpid():
            self._forget()
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

    def _hear(self, connection: Connection, after: int) -> None:
        seen = _CHUNK
        while seen == _CHUNK:
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
        self._signals_after = None

    def _call(self, connection: Connection, limit: int, lease: timedelta) -> Batch:
        with translated(f"dequeue from queue {self._target.queue!r}"):
            *rows, about = connection.execute(
                statements.dequeue(self._target.schema),
                {
                    "queue": self._target.queue,
                    "limit": limit,
                    "lease": microseconds(lease),
                    "consumer": self.name,
                    "lease_id": self._lease_id,
                    "hints": self._hints,
                },
            ).all()
            connection.commit()
        self._lease_id = about.lease_id
        self._hints = about.hints
        self._signals_after = about.signals_after
        due_in = None if about.due_in is None else duration(about.due_in)
        if not rows:
            return Batch([], due_in)
        held = Lease(about.lease_id, self.name, instant(about.lease_expires_at))
        return Batch([self._delivery(row, held) for row in rows], due_in)

    def _delivery(self, row: Row[Any], lease: Lease) -> Delivery:
        decoded: Any
        try:
            decoded = self._codec.decode(row.content)
        except PayloadError as error:
            decoded = error
        except Exception as error:  # noqa: BLE001 - whatever a codec raises must not cost the rest of the batch
            decoded = PayloadError(f"{self._codec!r:.80} cannot decode it: {type(error).__name__}: {error}")
            decoded.__cause__ = error
        return Delivery(
            message_id=row.message_id,
            queue=self._target.queue,
            channel=row.channel,
            kind=row.kind,
            content=row.content,
            headers=row.headers,
            attempt=row.attempt,
            max_attempts=row.max_attempts,
            enqueued_at=instant(row.enqueued_at),
            lease=lease,
            deliveries=row.deliveries,
            row_id=row.row_id,
            decoded=decoded,
        )
