"""Rules of consumers: dequeues, hearings, extensions, heartbeats."""

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy import text

from sqlalchemy_fairqueue import Delivery, LeaseLost
from sqlalchemy_fairqueue.queue.deliveries import MAX_BYTES
from sqlalchemy_fairqueue.reports import Deliveries
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from tests.model.allowances import Offer, check_batch, check_due_in, check_quota, offers, put_off, unhindered
from tests.model.books import HELD_BACK, Lease
from tests.model.rates import SharedRoom
from tests.model.spoilt import Spoiling
from tests.model.transactions import Layer, Transaction
from tests.model.turns import cost_of, kind_of
from tests.model.work import QUEUE, Effects
from tests.model.world import BESIDE, CONSUMERS, TICK

LEASES = st.sampled_from([timedelta(seconds=1), timedelta(seconds=30)])
LIMITS = st.integers(1, 3) | st.integers(1, 20)
# A content has a digit or two, and headers have some 14 bytes.
BYTES = st.sampled_from([MAX_BYTES, MAX_BYTES, 1, 2, 15, 16, 17, 32, 64])


# So long take a dequeue and one beside it.
_BOTH = 60 * TICK


class _RolledBack(Exception):
    """The transaction of a dequeue is to end without its COMMIT."""


class Consuming(Spoiling):
    """What consumers do."""

    @rule(
        consumer=st.integers(0, CONSUMERS - 1),
        limit=LIMITS,
        lease=LEASES,
        is_new=st.booleans(),
        max_bytes=BYTES,
    )
    @precondition(lambda self: self.books.messages)
    def dequeue(self, consumer: int, limit: int, lease: timedelta, *, is_new: bool, max_bytes: int) -> None:
        """Take what the model allows, no less and no more, without ever waiting."""
        self.take(consumer, limit, lease, is_new=is_new, max_bytes=max_bytes)

    @rule(
        consumer=st.integers(0, CONSUMERS - 1),
        first=st.integers(1, 3),
        second=st.integers(2, 20),
        lease=LEASES,
        fails=st.booleans(),
    )
    @precondition(lambda self: self.books.messages and not self.books.spoilt)
    def dequeue_at_once(self, consumer: int, first: int, second: int, lease: timedelta, *, fails: bool) -> None:
        """Two calls at the same time: the second comes when the first has done all but its COMMIT, which may fail.

        It waits for nothing, has nothing of what the first one holds, and does not get ahead of it.
        """

        def meanwhile() -> None:
            locked = self.world.locked()
            self.open[BESIDE] = Transaction([Layer(sent=locked)])
            try:
                with self.turns.beside(locked.states):
                    batch = self.take(consumer, second, lease)
            finally:
                del self.open[BESIDE]
            if locked.states:
                self.saw("a dequeue beside another gave " + ("messages" if batch else "nothing"))
            if fails:
                raise _RolledBack

        moments = [one.expires_at for one in self.books.leases.values()]
        moments += [one.dequeue_at for one in self.books.messages.values()]
        now = self.world.pass_by(moments, _BOTH)
        if not fails:
            self.take(BESIDE, first, lease, meanwhile=meanwhile)
            return
        offered = offers(self.books, self.others(), now)
        with self.world.before_commit(meanwhile), contextlib.suppress(_RolledBack):
            self.world.dequeue(BESIDE, limit=first, lease=lease)
        self._turns_served([], offered)

    def take(
        self,
        consumer: int,
        limit: int,
        lease: timedelta,
        *,
        is_new: bool = False,
        max_bytes: int = MAX_BYTES,
        meanwhile: Callable[[], None] | None = None,
    ) -> Deliveries:
        """The same, in the course of something longer. *meanwhile* is called before the COMMIT."""
        self.wait_for_quiet()
        self.world.pass_by((one.expires_at for one in self.books.leases.values()), 8 * TICK)
        if is_new:
            self.world.forget(consumer)
        # A bad row holds its channel back.
        hidden = {self.books.messages[one].channel for one in self.books.spoilt}
        kept = self.world.lease_of(consumer, lease)
        now = self.world.now() + TICK
        others = self.others()
        if others.queue and not self.world.rows("select 1 from fq_queue_state where queue = %(queue)s", queue=QUEUE):
            # The first delivery needs the queue's row.
            others.queue_state = others.gate = True
        self._reclaim(now, others)
        if ((others.queue_state and self.books.limits.limited) or others.gate) and not self.books.paused:
            return self._turned_away(consumer, limit, lease, now)
        room, shared = self.books.room(limit, now), self.shared_room()

        with self.world.before_commit(meanwhile):
            batch, is_late = self._dequeued(now, consumer, limit=limit, lease=lease, max_bytes=max_bytes)
        offered = offers(self.books, others, now)
        span = now, self.world.now() if is_late else now

        self._note_what_it_met(batch, limit, room, offered)
        most = shared.most(room, self.world.now())
        # Who passes by a channel that another transaction holds takes no more than is fair while it does.
        hindered = others.queue_state or len(offered) < len(self.books.channels)
        hindered |= check_quota(self.books, batch, offered)
        # Costs that a call looks at and cannot take count.
        metered = self.books.rate.metered or shared.rate.metered
        hindered |= metered and any(offer.locked or offer.fresh or offer.waiting for offer in offered.values())
        least = 0 if hindered else shared.least(self.books.room(limit, now, surely=True), now)
        was_cut = check_batch(batch, least, most, offered, max_bytes)
        self.note_drawn([cost_of(one.payload) for one in batch], now)
        self.saw("dequeue was cut by its bytes" if was_cut else "dequeue ended by itself")
        self._check_lease(batch, consumer, kept if kept not in others.leases else None, span, microseconds(lease))
        if not batch:
            self._note_empty_lease(consumer, lease)
        for delivery in batch:
            self.deliver(delivery)
        self._count(batch, now)
        if is_late:
            self.follow_rates()
        self._turns_served(batch, {name: offer for name, offer in offered.items() if name not in hidden})
        put_off(self.books, offered, self.world.now())
        if meanwhile is None:
            # A queue that waited for its part when the call began may have given up by now.
            has_room = not shared.contended and self._has_room(now)
            check_due_in(batch, limit, self.books, others, now, has_room=has_room)
        self.given = [*self.given, *batch][-30:]
        return batch

    def _dequeued(self, now: int, consumer: int, **how: Any) -> tuple[Deliveries, bool]:
        """What a call gives, and whether it was tried again after a bad row had been set aside."""
        failures = self.world.failures
        batch = self.world.dequeue(consumer, **how)
        is_late = self.note_set_aside(self.world.failures - failures)
        self.note_ordering(now, again=is_late)
        return batch, is_late

    def _count(self, batch: Sequence[Delivery], now: int) -> None:
        """Count a batch against the limits of its channels and of the queue, and fail if they do not allow it."""
        for name in {one.channel for one in batch}:
            channel = self.books.channels[name]
            channel.cell.release([cost_of(one.payload) for one in batch if one.channel == name], now)
            limit = channel.policy.max_concurrency
            assert limit is None or self.books.out_of(name)[0] <= limit, f"channel {name} exceeds its limit {limit}"
        if batch and self.books.limits.limited:
            costs = [cost_of(one.payload) for one in batch]
            assert self.books.rate.fits(costs, now) == len(batch), f"the queue's rate does not allow costs of {costs}"
            self.books.rate.release(costs, now)
            self.saw("a rate of the queue counted cost" if self.books.rate.metered else "a rate counted messages")

    def deliver(self, delivery: Delivery) -> None:
        """A delivery has come into a consumer's hands, as the message was added."""
        message = self.books.deliver(delivery.message_id, delivery.lease.id, delivery.deliveries)
        assert (delivery.payload, delivery.attempt) == (message.number, message.attempts)
        assert delivery.kind == kind_of(message.number)
        assert delivery.headers == message.headers

    def note_ordering(self, now: int, *, again: bool = False) -> None:
        """Note which messages a call that began then has held back, or let go (I36). *again*: or both, for it was tried
        again after a bad row had been set aside.
        """
        known = [one for one in self.books.messages.values() if one.ordering_key is not None]
        if not known:
            return
        places = dict(self.world.rows("select id, dequeue_at from fq_message where ordering_key is not null"))
        span = now, self.world.now()
        held = [one for one in known if places.get(one.id) == HELD_BACK and not one.is_held_back]
        # Ids that are there no more have been taken back by a call whose COMMIT is to come.
        gone = [
            one
            for one in known
            if places.get(one.id, HELD_BACK) != HELD_BACK
            and (one.is_held_back or (again and places[one.id] != one.dequeue_at))
        ]
        for one in held:
            self.books.hold_back(one, span[1])
            self.saw("a message was held back")
        for one in gone:
            self.books.let_go(one, places[one.id], span)
            self.saw("a message was let go")

    def _turns_served(self, batch: Sequence[Delivery], offered: dict[str, Offer]) -> None:
        weights = {name: channel.policy.weight for name, channel in self.books.channels.items()}
        self.turns.served(batch, unhindered(self.books, offered), weights)

    def shared_room(self) -> SharedRoom:
        """The room in the shared limit that the queue draws from; here it draws from none."""
        return SharedRoom()

    def note_drawn(self, costs: Sequence[int], now: int) -> None:
        """Messages of these costs were drawn from the shared limit, at *now* or a little later."""

    def _has_room(self, now: int) -> bool:
        if self.books.holds_back(max((one.cost for one in self.books.messages.values()), default=0)):
            return False
        return self.shared_room().least(self.books.room(1, now), now) > 0

    def _reclaim(self, now: int, others: Effects) -> None:
        """What a dequeue does first, unless somebody has the state of the queue: expired leases are taken back, and
        messages that came due promoted.
        """
        if others.queue_state:
            return
        self.books.reclaim(now, others.messages, others.leases)
        if self.books.promote(now, others.messages):
            self.saw("a scheduled message got the position of its priority")

    def _note_what_it_met(self, batch: Deliveries, limit: int, room: int, offered: dict[str, Offer]) -> None:
        if batch:
            note(f"    -> {[(one.channel, one.message_id) for one in batch]}")
        self.saw(f"dequeue gave {'nothing' if not batch else 'a full batch' if len(batch) == limit else 'some'}")
        if any(offer.locked for offer in offered.values()):
            self.saw("dequeue passed by a locked message")
        if len(offered) < len(self.books.channels):
            self.saw("dequeue passed by a locked channel")
        if len(batch) == room < limit:
            self.saw("dequeue came to the queue's limit")
        if any(offer.metered and offer.most < len(offer.ready) for offer in offered.values()):
            self.saw("dequeue came to a quota in cost")

    def _turned_away(self, consumer: int, limit: int, lease: timedelta, now: int) -> Deliveries:
        """Somebody is setting the queue's limit, or changing what it counts: what is found is left, and the next poll
        is soon.
        """
        batch, _ = self._dequeued(now, consumer, limit=limit, lease=lease)
        assert list(batch) == []
        if batch.due_in is not None and batch.due_in >= timedelta(milliseconds=10):
            self.saw("dequeue was turned away")
        else:
            # Nothing was found, so that nothing was asked for.
            check_due_in(batch, limit, self.books, self.others(), now, has_room=self._has_room(now))
        return batch

    def _note_empty_lease(self, consumer: int, asked: timedelta) -> None:
        """A channel that looked ready had nothing: its lease is there for the next call."""
        made = self.world.lease_of(consumer, asked)
        for lease_id, expires_at in self.world.rows("select id, expires_at from fq_lease where id = %(id)s", id=made):
            self.books.leases.setdefault(lease_id, Lease(consumer, expires_at))

    def _check_lease(
        self, batch: Deliveries, consumer: int, kept: int | None, now: tuple[int, int], lease: int
    ) -> None:
        """*now*: the first and the last instant at which the dequeue may have been."""
        if not batch:
            return
        found = batch[0].lease
        assert all(one.lease == found for one in batch)
        expires_at = instant_microseconds(found.expires_at)
        known = None if kept is None else self.books.leases.get(kept)
        if known is not None and known.expires_at >= now[1] + lease:
            assert found.id == kept, "a good lease is used again"
        if known is not None and found.id == kept:
            assert known.expires_at >= now[0] + lease, "a lease that is too short was used again"
            assert expires_at == known.expires_at
        else:
            assert found.id not in self.books.leases, "a lease id came twice"
            assert now[0] + lease + lease // 8 <= expires_at <= now[1] + lease + lease // 8
            self.books.leases[found.id] = Lease(consumer, expires_at)

    @rule()
    @precondition(lambda self: self.books.messages)
    def hear(self) -> None:
        """A heartbeat hears signals and takes nothing."""
        now = self.world.now()
        with self.world.engine.begin() as connection:
            connection.execute(text("select fq_hear(:queue)"), {"queue": QUEUE})
        self.note_ordering(now)

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
        token = delivery.lease.id, delivery.deliveries
        held = message is not None and (message.lease_id, message.deliveries) == token
        if late:
            self.world.advance(timedelta(microseconds=max(0, found.expires_at - self.world.now())))
        now = self.world.pass_by([found.expires_at], 5 * TICK) + TICK
        try:
            ends = self.queue.extend(self.world.engine, delivery, lease=lease)
        except LeaseLost:
            assert not held or found.expires_at <= now, "a lease that is alive and held was called lost"
        else:
            assert held, "a lease was extended for a delivery that is not held"
            assert found.expires_at > now, "an expired lease was extended"
            found.expires_at = max(found.expires_at, now + microseconds(lease))
            assert instant_microseconds(ends) == found.expires_at

    @rule(which=st.sets(st.integers(0, 4), min_size=1, max_size=3), lease=LEASES)
    @precondition(lambda self: self.books.leases)
    def heartbeat(self, which: set[int], lease: timedelta) -> None:
        """Leases that are alive run on, with word of what was withdrawn under them; the others are told to be lost."""
        newest = list(self.books.leases)[::-1]
        leases = {newest[number % len(newest)] for number in which} - self.others().leases
        now = self.world.pass_by((self.books.leases[one].expires_at for one in leases), 5 * TICK) + TICK
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
