"""Finds what a dequeue took whose answer was lost.

When a connection breaks after the database committed a dequeue and before it answered, messages are held that no
handler will see. They come back when their lease ends; but a lease that handlers at work are held under too is extended
for as long as these take. So after such a failure the worker looks what is held under the lease, and gives back what it
does not know; and again, ever more seldom, while the lease is kept, for a network may deliver the call late.
"""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import translated
from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.logs import log

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue

# The database may still be at it when the connection is gone.
_AFTER = 2.0


class UnansweredDequeues:
    """The leases of one queue under which a dequeue was not answered. The fetcher's thread looks.

    Attributes:
        outage: Its failures in a row.
    """

    def __init__(self, source: ServedQueue, name: str) -> None:
        self.outage = Backoff(log, f"look after lost answers of {source.queue.name!r}", name)
        self._source = source
        # By lease: when to look, and how many seconds after that to look again.
        self._leases: dict[int, tuple[float, float]] = {}

    @property
    def due_at(self) -> float:
        """When to look next, on time.monotonic."""
        return min((at for at, _ in self._leases.values()), default=math.inf)

    def unanswered(self, lease_id: int | None) -> None:
        """A dequeue that may have used this lease failed."""
        if lease_id is not None:
            self._leases[lease_id] = (monotonic() + _AFTER, _AFTER)

    def turn(self, connection: Connection) -> None:
        """Give back what nobody knows of."""
        now = monotonic()
        for lease_id, (at, wait) in list(self._leases.items()):
            if at > now:
                continue
            # Before it is tried: a look that fails is made again as late.
            self._leases[lease_id] = (now + 2 * wait, 2 * wait)
            if not self._give_back(connection, lease_id):
                del self._leases[lease_id]

    def _give_back(self, connection: Connection, lease_id: int) -> bool:
        """Returns whether the lease is kept."""
        source = self._source
        claims = [claim for claim in source.claims.held() if claim.lease_id == lease_id]
        if not claims:
            # Nobody extends it: it ends by itself.
            return False
        with translated(f"find what is held under lease {lease_id}"):
            rows = connection.execute(statements.held(source.target.schema), {"lease_id": lease_id}).all()
            connection.commit()
        # After the query: what is settled meanwhile is refused by its token.
        known = {context.delivery.message_id for claim in claims for context in claim.held.copy()}
        unknown = [row for row in rows if row.message_id not in known]
        if not unknown:
            return True
        log.warning(
            "worker gives back %d messages of queue %s that a dequeue took whose answer was lost",
            len(unknown),
            source.queue.name,
            extra={"queue": source.queue.name, "message_ids": tuple(row.message_id for row in unknown)},
        )
        with translated(f"release {len(unknown)} deliveries of queue {source.queue.name!r}"):
            connection.execute(
                statements.release(source.target.schema),
                {
                    "queue": source.target.queue,
                    "ids": [row.message_id for row in unknown],
                    "rows": [row.row_id for row in unknown],
                    "lease_ids": [lease_id] * len(unknown),
                    "deliveries": [row.deliveries for row in unknown],
                    "delays": [None] * len(unknown),
                    "notify": False,
                },
            ).all()
            connection.commit()
        return True
