"""The queues that are measured: each takes up to n messages under a lease, and completes them in a second transaction.

All sides run the same client code but for the statements: the same round trips, the same columns in the answer, the
same columns read from it.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from tests.bench import wire as client
from tests.bench.wire import INT4, INT4_ARRAY, INT8, INT8_ARRAY, TEXT, TID_ARRAY, Statement, Wire, array, int4, int8

QUEUE: Final = b"bench"
LEASE: Final = int8(30_000_000)


@dataclass(slots=True)
class Taken:
    """What one dequeue gave, in the server's form: what completion needs.

    Attributes:
        more: whether asking again at once may give more.
    """

    ids: list[bytes]
    rows: list[bytes]
    leases: list[bytes]
    deliveries: list[bytes]
    more: bool


class Side(Protocol):
    """One measured queue, as one consumer sees it."""

    def take(self, limit: int) -> Taken:
        """Lease up to *limit* messages, in one transaction of its own."""

    def finish(self, taken: Taken) -> None:
        """Complete them, in another."""

    def refill(self, count: int, channels: int) -> None:
        """Add *count* messages to channels by chance, in a third."""


@dataclass(slots=True)
class Fair:
    """The library's functions, called as its consumer calls them: the lease goes from call to call."""

    wire: Wire
    consumer: bytes
    _lease: bytes = field(init=False, default=int8(0))

    def take(self, limit: int) -> Taken:
        """See `Side`."""
        answer = self.wire.call(_FAIR_DEQUEUE, QUEUE, int4(limit), LEASE, self.consumer, self._lease)
        last = answer.ntuples - 1
        self._lease = answer.get_value(last, 11) or int8(0)
        ids, places, deliveries = (client.column(answer, index, last) for index in (0, 1, 10))
        more = last > 0 or client.number(answer.get_value(last, 12)) == 0
        return Taken(ids, places, [self._lease] * last, deliveries, more=more)

    def finish(self, taken: Taken) -> None:
        """See `Side`."""
        ids, rows, leases = array(INT8_ARRAY, taken.ids), array(TID_ARRAY, taken.rows), array(INT8_ARRAY, taken.leases)
        lost = self.wire.call(_FAIR_COMPLETE, QUEUE, ids, rows, leases, array(INT4_ARRAY, taken.deliveries))
        assert not lost.ntuples, f"{lost.ntuples} deliveries were lost under a live lease"

    def refill(self, count: int, channels: int) -> None:
        """See `Side`."""
        self.wire.call(_FAIR_ENQUEUE, int4(count), int4(channels))


def hear(wire: Wire) -> None:
    """Hear the waiting signals, chunk by chunk, each in a transaction of its own."""
    while client.number(wire.call(_FAIR_HEAR, QUEUE).get_value(0, 0)):
        pass


@dataclass(slots=True)
class Plain:
    """The unfair bound: the oldest rows of one table. Nobody finds what a dead consumer holds."""

    wire: Wire
    consumer: bytes
    _lease: bytes = field(init=False, default_factory=lambda: int8(secrets.randbits(63)))

    def take(self, limit: int) -> Taken:
        """See `Side`."""
        answer = self.wire.call(_PLAIN_DEQUEUE, int4(limit), self._lease)
        ids, places, leases, deliveries = (client.column(answer, index, answer.ntuples) for index in (0, 1, 11, 10))
        return Taken(ids, places, leases, deliveries, more=answer.ntuples > 0)

    def finish(self, taken: Taken) -> None:
        """See `Side`."""
        ids, leases = array(INT8_ARRAY, taken.ids), array(INT8_ARRAY, taken.leases)
        answer = self.wire.call(_PLAIN_COMPLETE, ids, leases, array(INT4_ARRAY, taken.deliveries))
        assert answer.command_tuples == len(taken.ids), "a leased row was gone"

    def refill(self, count: int, channels: int) -> None:
        """See `Side`."""
        self.wire.call(_PLAIN_ENQUEUE, int4(count), int4(channels))


SIDES: Final[dict[str, Callable[[Wire, bytes], Side]]] = {"fair": Fair, "plain": Plain}

_FAIR_DEQUEUE: Final = Statement(
    b"dequeue",
    b"select message_id, row_id, channel_id, channel, kind, content, headers, enqueued_at, attempt, max_attempts,"
    b" deliveries, lease_id, due_in from fairqueue.fq_dequeue($1, $2, $3, $4, $5)",
    (TEXT, INT4, INT8, TEXT, INT8),
)
_FAIR_COMPLETE: Final = Statement(
    b"complete",
    b"select message_id from fairqueue.fq_complete($1, $2, $3, $4, $5)",
    (TEXT, INT8_ARRAY, TID_ARRAY, INT8_ARRAY, INT4_ARRAY),
)
_FAIR_HEAR: Final = Statement(b"hear", b"select cast(has_more as integer) from fairqueue.fq_hear($1)", (TEXT,))
_CHANCE: Final = (
    b" (select 1 + floor(random() * $2)::bigint as channel_id, convert_to('{\"upload\": \"' || repeat('x', 80) || i"
    b" || '\"}', 'UTF8') as content from generate_series(1, $1) i) g"
)
_FAIR_ENQUEUE: Final = Statement(
    b"enqueue",
    b"select count(*) from (select array_agg('channel-' || channel_id) c, array_agg('default'::text) k,"
    b" array_agg(content) b, array_agg(null::jsonb) h, array_agg(null::bigint) a, array_agg(null::integer) p,"
    b" array_agg(null::text) t from" + _CHANCE + b") e,"
    b" fairqueue.fq_enqueue('bench', e.c, e.k, e.b, e.h, e.a, e.a, e.p, e.t, e.p)",
    (INT4, INT4),
)
_PLAIN_DEQUEUE: Final = Statement(
    b"dequeue",
    b"update plain.message m set lease_id = $2, attempts = m.attempts + 1, deliveries = m.deliveries + 1"
    b" from (select r.ctid as row from plain.message r where r.lease_id is null order by r.id limit $1"
    b" for update skip locked) t where m.ctid = t.row"
    b" returning m.id, m.ctid, m.channel_id, 'channel-' || m.channel_id, m.kind, m.content, m.headers, m.enqueued_at,"
    b" m.attempts, m.max_attempts, m.deliveries, m.lease_id",
    (INT4, INT8),
)
_PLAIN_COMPLETE: Final = Statement(
    b"complete",
    b"delete from plain.message m using unnest($1, $2, $3) u(id, lease_id, deliveries)"
    b" where m.id = u.id and m.lease_id is not distinct from u.lease_id and m.deliveries = u.deliveries",
    (INT8_ARRAY, INT8_ARRAY, INT4_ARRAY),
)
_PLAIN_ENQUEUE: Final = Statement(
    b"enqueue",
    b"insert into plain.message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
    b" select g.channel_id, 'default', g.content, fairqueue.fq_now(), fairqueue.fq_now(), 20 from" + _CHANCE,
    (INT4, INT4),
)
