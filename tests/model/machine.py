"""The machine: transactions, consumers, foreign locks and time, in any order; at the end everything is drained."""

import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy import text

from sqlalchemy_fairqueue import Batch, LeaseLost
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from sqlalchemy_fairqueue.unit_of_work import Verb
from tests.model.books import Lease
from tests.model.business import CHANNELS, KEYED, TRANSACTIONS
from tests.model.letters import Letters
from tests.model.serving import check_batch, check_due_in, offers, put_off, unhindered
from tests.model.work import QUEUE, Settled, Work
from tests.model.world import CONSUMERS, TICK

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.messages import OnDuplicate

LEASES = st.sampled_from([timedelta(seconds=1), timedelta(seconds=30)])
LIMITS = st.integers(1, 3) | st.integers(1, 20)
_LOCKS = {
    "message": "select id from fq_message where id = :which for update skip locked",
    "state": (
        "select s.channel_id from fq_channel_state s join fq_channel c on c.id = s.channel_id "
        "where c.name = :which for no key update of s skip locked"
    ),
    "lease": "select id from fq_lease where id = :which for update skip locked",
    "queue": "select true from fq_queue_state where queue = :which for no key update skip locked",
}
_LOOKS = 12


class FairQueueMachine(Letters):
    """The rules of consumers, of foreign locks and of time."""

    @rule(
        consumer=st.integers(0, CONSUMERS - 1),
        limit=LIMITS,
        lease=LEASES,
        hints=st.sampled_from(["full", "kept", "forgotten"]),
    )
    @precondition(lambda self: self.books.messages)
    def dequeue(self, consumer: int, limit: int, lease: timedelta, hints: str) -> None:
        """Take what the model allows, no less and no more, without ever waiting."""
        self._take(consumer, limit, lease, hints)

    def _take(self, consumer: int, limit: int, lease: timedelta, hints: str) -> Batch:
        while any(0 < one.expires_at - self.world.now() <= 2 * TICK for one in self.books.leases.values()):
            self.world.advance(timedelta(microseconds=TICK))
        self.world.set_hints(consumer, hints)
        hidden = self.world.hidden_from(consumer) if hints == "kept" else set()
        kept = self.world.lease_of(consumer)
        now = self.world.now() + TICK
        others = self.others()
        if others.gate:
            return self._turned_away(consumer, limit, lease)
        self.books.reclaim(now, others.messages, others.leases)
        if others.queue_state and self.books.limit is not None and not self.books.paused:
            return self._turned_away(consumer, limit, lease)
        offered = offers(self.books, others, now)
        room = self.books.room(limit)

        batch = self.world.queues[consumer].dequeue(self.world.engine, limit=limit, lease=lease)

        if batch:
            note(f"    -> {[(one.channel, one.message_id) for one in batch]}")
        self.saw(f"dequeue gave {'nothing' if not batch else 'a full batch' if len(batch) == limit else 'some'}")
        if any(offer.skipped for offer in offered.values()):
            self.saw("dequeue passed by a locked message")
        if len(offered) < len(self.books.channels):
            self.saw("dequeue passed by a locked channel")
        if len(batch) == room < limit:
            self.saw("dequeue came to the queue's limit")
        given = check_batch(batch, room, offered)
        self._check_lease(batch, consumer, kept if kept not in others.leases else None, now, microseconds(lease))
        for delivery in batch:
            message = self.books.deliver(delivery.message_id, delivery.lease.id, delivery.deliveries)
            assert (delivery.payload, delivery.attempt) == (message.number, message.attempts)
            assert delivery.kind == f"kind-{message.number % 3}"
            assert delivery.headers == ({"number": message.number} if message.number % 2 else None)
        for name, count in given.items():
            channel = self.books.channels[name]
            channel.release(count, now)
            limit_ = channel.policy.max_concurrency
            assert limit_ is None or self.books.slots_of(name) <= limit_, f"channel {name} exceeds its limit {limit_}"
        self.turns.served(
            batch,
            {name: count for name, count in unhindered(self.books, offered).items() if name not in hidden},
            {name: channel.policy.weight for name, channel in self.books.channels.items()},
        )
        put_off(self.books, offered, self.world.now())
        check_due_in(batch, limit, self.books, others, now)
        self.given = [*self.given, *batch][-30:]
        return batch

    def _turned_away(self, consumer: int, limit: int, lease: timedelta) -> Batch:
        """Somebody is changing what the queue's limit counts: nothing is taken, and the next look is soon."""
        batch = self.world.queues[consumer].dequeue(self.world.engine, limit=limit, lease=lease)
        assert (list(batch), batch.due_in) == ([], timedelta(milliseconds=10))
        self.saw("dequeue was turned away")
        return batch

    def _check_lease(self, batch: Batch, consumer: int, kept: int | None, now: int, lease: int) -> None:
        if not batch:
            return
        found = batch[0].lease
        assert all(one.lease == found for one in batch)
        expires_at = instant_microseconds(found.expires_at)
        if kept in self.books.leases and self.books.leases[kept].expires_at >= now + lease:
            assert (found.id, expires_at) == (kept, self.books.leases[kept].expires_at), "a good lease is used again"
        else:
            assert found.id not in self.books.leases, "a lease id came twice"
            assert expires_at == now + lease + lease // 8
            self.books.leases[found.id] = Lease(consumer, expires_at)

    @rule(consumer=st.integers(0, CONSUMERS - 1), verb=st.sampled_from([Verb.RETRY, Verb.RELEASE]))
    @precondition(lambda self: self.books.messages)
    def take_again(self, consumer: int, verb: Verb) -> None:
        """A consumer gives back what it took and takes it again under the same lease: the first tokens are lost."""
        batch = self._take(consumer, 2, timedelta(seconds=30), "full")
        if batch:
            self.settle_in(None, batch, verb, timedelta(), now=True)
            self._take(consumer, 20, timedelta(seconds=1), "full")

    @rule(
        message=KEYED,
        verb=st.sampled_from([Verb.BURY, Verb.BURY, Verb.RETRY]),
        taken=st.sampled_from(["tried", "tried", "released", "no"]),
    )
    @precondition(lambda self: self.world.version > 1)
    def ask_again(self, message: tuple[str, str, int, "OnDuplicate"], verb: Verb, taken: str) -> None:
        """A message with a key is tried in vain and asked for again; if it died, it is redriven besides."""
        channel, key, when, on_duplicate = message
        self.commit_messages([self.wanted(channel, key, -9)])
        batch = self._take(0, 5, timedelta(seconds=30), "full")
        tried = [one for one in batch if self.books.messages[one.message_id].key is not None]
        if tried and taken != "no":
            self.settle_in(None, tried, verb if taken == "tried" else Verb.RELEASE, timedelta(), now=True)
        self.commit_messages([self.wanted(channel, key, when, on_duplicate)])
        if self.books.dead:
            self.redrive(None, None, 1000)

    @rule(count=st.integers(1, 6), verb=st.sampled_from([Verb.COMPLETE, Verb.BURY]))
    @precondition(lambda self: self.books.messages)
    def work(self, count: int, verb: Verb) -> None:
        """A consumer that goes round: one message at a time, each completed or buried at once."""
        for _ in range(count):
            batch = self._take(0, 1, timedelta(seconds=1), "full")
            if batch:
                self.settle_in(None, batch, verb, timedelta(), now=True)

    @rule()
    @precondition(lambda self: self.books.messages)
    def hear(self) -> None:
        """A heartbeat hears signals and takes nothing."""
        with self.world.engine.begin() as connection:
            connection.execute(text("select fq_hear(:queue, 0, 3)"), {"queue": QUEUE})

    @rule(which=st.integers(0, 8), lease=LEASES, late=st.booleans())
    @precondition(lambda self: self.given)
    def extend(self, which: int, lease: timedelta, *, late: bool) -> None:
        """A lease that is alive runs on, with all that is held under it; one that is lost stays lost."""
        given = self.stale() or self.hands()
        delivery = given[which % len(given)]
        found = self.books.leases[delivery.lease.id]
        if delivery.lease.id in self.others().leases:
            return
        message = self.books.messages.get(delivery.message_id)
        held = message is not None and (message.lease_id, message.deliveries) == (
            delivery.lease.id,
            delivery.deliveries,
        )
        if late:
            self.world.advance(timedelta(microseconds=max(0, found.expires_at - self.world.now())))
        now = self.world.now() + TICK
        try:
            ends = self.world.queues[0].extend(self.world.engine, delivery, lease=lease)
        except LeaseLost:
            assert not held or found.expires_at <= now, "a lease that is alive and held was called lost"
        else:
            assert held, "a lease was extended for a delivery that is not held"
            assert found.expires_at > now, "an expired lease was extended"
            found.expires_at = max(found.expires_at, now + microseconds(lease))
            assert instant_microseconds(ends) == found.expires_at

    @rule(which=st.sets(st.integers(0, 4), min_size=1, max_size=3), lease=LEASES)
    @precondition(lambda self: self.world.version > 1 and self.books.leases)
    def heartbeat(self, which: set[int], lease: timedelta) -> None:
        """Leases that are alive run on, with word of what was withdrawn under them; the others are told to be lost."""
        newest = list(self.books.leases)[::-1]
        leases = {newest[number % len(newest)] for number in which} - self.others().leases
        while any(0 < self.books.leases[one].expires_at - self.world.now() <= 5 * TICK for one in leases):
            self.world.advance(timedelta(microseconds=TICK))
        now = self.world.now() + TICK
        expected: list[tuple[int, int | None, list[int]]] = []
        for lease_id in sorted(leases):
            found = self.books.leases[lease_id]
            if found.expires_at <= now:
                expected.append((lease_id, None, []))
                continue
            found.expires_at = max(found.expires_at, now + microseconds(lease))
            out = [one for one in self.books.messages.values() if one.lease_id == lease_id]
            cancelled = sorted(one.id for one in out if one.cancelled)
            expected.append((lease_id, found.expires_at, cancelled))
            self.saw("heartbeat told of a cancel" if cancelled else "heartbeat")
        with self.world.engine.begin() as connection:
            asked = {"lease_ids": list(leases), "lease": microseconds(lease)}
            told = connection.execute(text("select * from fq_heartbeat(:lease_ids, :lease)"), asked).all()
        assert [(row.lease_id, row.expires_at, row.cancelled) for row in told] == expected

    @rule(
        tx=TRANSACTIONS,
        kind=st.sampled_from(["message", "message", "state", "lease", "queue"]),
        which=st.integers(0, 20),
        channel=CHANNELS,
    )
    def lock(self, tx: int, kind: Literal["message", "state", "lease", "queue"], which: int, channel: str) -> None:
        """Somebody locks a row and keeps it locked until the transaction ends."""
        if kind == "queue" and self.books.limit is None:
            return
        session, transaction = self.session(tx)
        ready = [one.id for one in self.books.messages.values() if one.lease_id is None]
        messages = ready if ready and which % 3 else self.books.messages
        # Leases in the order in which they were made: their ids are random, and a program must mean the same each time.
        rows = sorted(messages) if kind == "message" else list(self.books.leases)
        if kind in {"state", "queue"}:
            wanted: int | str = channel if kind == "state" else QUEUE
        elif rows:
            wanted = rows[which % len(rows)]
        else:
            return
        got = session.connection().execute(text(_LOCKS[kind]), {"which": wanted}).scalars().all()
        sent = transaction.layers[-1].sent
        if got and kind == "queue":
            sent.queue_state = True
        elif got and isinstance(wanted, str):
            sent.states.add(wanted)
        elif got and isinstance(wanted, int):
            (sent.messages if kind == "message" else sent.leases).add(wanted)

    @rule(by=st.sampled_from([1_000, 10_000, 100_000, 1_000_000, 40_000_000]))
    def time_passes(self, by: int) -> None:
        """Leases expire, delays end, rates recover."""
        self.world.advance(timedelta(microseconds=by))

    def teardown(self) -> None:
        """I1, I8: with all locks gone, dequeue and due_in alone find everything that is left."""
        try:
            for tx in list(self.open):
                self.roll_back(tx, close=True)
            if sys.exc_info()[0] is None:
                self.resume_all()
                self._drain()
        finally:
            for session in self.sessions.values():
                session.close()

    def _drain(self) -> None:
        while batch := self._drained():
            works: list[Work] = [Settled(one, Verb.COMPLETE, 0) for one in batch]
            assert self.send_now(None, works, partial(self.world.queues[0].complete, self.world.engine, batch))
            self.tables_agree_with_the_books()
        self.tables_agree_with_the_books()
        assert not self.books.messages, f"forgotten: {self.books.messages}"
        assert not (left := self.world.left()), "\n".join(left)

    def _drained(self) -> Batch:
        """The next batch, looked for when the last one said; empty when nothing is said to be scheduled any more."""
        for _ in range(_LOOKS):
            batch = self._take(0, 20, timedelta(seconds=1), "kept")
            if batch or batch.due_in is None:
                return batch
            self.world.advance(batch.due_in)
        pytest.fail(f"looked {_LOOKS} times when something was said to be due, and found nothing")
