"""Rules of business transactions: work recorded or sent at once, savepoints, commit, rollback."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Enqueue, Receipt
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.unit_of_work import Verb
from tests.model.stage import Stage
from tests.model.transactions import Layer
from tests.model.work import Cancelled, Configured, Limited, Paused, Recorded, Settled, Wanted, Work

CHANNELS = st.sampled_from(["a", "b", "c", "d", "e"])
TRANSACTIONS = st.integers(0, 2)
MESSAGES = st.tuples(
    CHANNELS,
    st.none() | st.sampled_from(["k1", "k2"]),
    st.just(0) | st.sampled_from([5_000, 2_000_000, -1, -9]),
)
POLICIES = st.builds(
    ChannelPolicy,
    max_concurrency=st.none() | st.integers(1, 3),
    release_interval=st.sampled_from([timedelta(), timedelta(), timedelta(milliseconds=20), timedelta(seconds=1)]),
    release_burst=st.integers(1, 3),
    weight=st.integers(1, 3),
)
VERBS = st.sampled_from(list(Verb))
DELAYS = st.sampled_from([0, 0, 3_000, 1_000_000])


def arguments(wanted: Wanted) -> dict[str, Any]:
    """What ``enqueue`` is called with."""
    return {
        "channel": wanted.channel,
        "payload": wanted.number,
        "key": wanted.key,
        "delay": timedelta(microseconds=wanted.when) if wanted.when > 0 else None,
        "priority": -wanted.when if wanted.when < 0 else None,
        "max_attempts": wanted.max_attempts,
    }


class Business(Stage):
    """What applications do in their own transactions."""

    def _wanted(self, channel: str, key: str | None, when: int, max_attempts: int) -> Wanted:
        self.numbers += 1
        return Wanted(self.numbers, channel, key, when, max_attempts, Receipt(channel))

    @initialize(backlog=st.dictionaries(CHANNELS, st.integers(1, 12), min_size=1))
    def begin_with_a_backlog(self, backlog: dict[str, int]) -> None:
        """There is something to serve from the first step on."""
        for channel, count in backlog.items():
            self.enqueue_and_commit(channel, count)

    @rule(channel=CHANNELS, count=st.integers(1, 8))
    def enqueue_and_commit(self, channel: str, count: int) -> None:
        """A short transaction of its own: the common case, and a backlog to be fair about."""
        tx = -1
        session, transaction = self.session(tx)
        for _ in range(count):
            self._record(tx, self._wanted(channel, None, 0, 3))
        assert transaction.recorded
        assert session.in_transaction()
        self.commit_open(tx)
        if tx in self.open:
            self.roll_back(tx, close=True)

    @rule(tx=TRANSACTIONS, messages=st.lists(MESSAGES, min_size=1, max_size=4), max_attempts=st.integers(1, 3))
    def enqueue(self, tx: int, messages: list[tuple[str, str | None, int]], max_attempts: int) -> None:
        """Recorded: sent with the commit."""
        self.session(tx)
        for channel, key, when in messages:
            self._record(tx, self._wanted(channel, key, when, max_attempts))

    def _record(self, tx: int, wanted: Wanted) -> None:
        session, transaction = self.session(tx)
        [receipt] = self.world.queues[0].enqueue_many(session, [Enqueue(**arguments(wanted))])
        asked = Wanted(wanted.number, wanted.channel, wanted.key, wanted.when, wanted.max_attempts, receipt)
        transaction.layers[-1].recorded.append(asked)

    @rule(tx=TRANSACTIONS, message=MESSAGES)
    def enqueue_now(self, tx: int, message: tuple[str, str | None, int]) -> None:
        """Sent at once: a first use or a key is held until the transaction ends."""
        session, transaction = self.session(tx)
        wanted = self._wanted(*message, 2)

        def send() -> None:
            wanted.receipt.message_id = self.world.queues[0].enqueue_now(session, **arguments(wanted))

        if self.send_now(tx, [wanted], send):
            wanted.receipt.created = transaction.sent.added[-1].existing is None

    @rule(
        tx=st.none() | TRANSACTIONS,
        which=st.lists(st.integers(0, 8), min_size=1, max_size=3, unique=True),
        verb=VERBS,
        delay=DELAYS,
        now=st.booleans(),
    )
    @precondition(lambda self: self.given)
    def settle(self, tx: int | None, which: list[int], verb: Verb, delay: int, *, now: bool) -> None:
        """Complete, retry, release or bury: recorded, sent at once, or (tx None) in a transaction of its own."""
        hands = self.hands()
        deliveries = {(one := hands[number % len(hands)]).message_id: one for number in which}
        pause = timedelta(microseconds=delay if verb in {Verb.RETRY, Verb.RELEASE} else 0)
        self.settle_in(tx, list(deliveries.values()), verb, pause, now=now)

    def settle_in(self, tx: int | None, deliveries: list[Delivery], verb: Verb, delay: timedelta, *, now: bool) -> None:
        """End deliveries in an open transaction, recorded or at once, or in one of their own."""
        works: list[Work] = [Settled(one, verb, microseconds(delay)) for one in deliveries]
        how = {"delay": delay} if delay else {}
        perform = getattr(self.world.queues[0], verb.value)
        if tx is None:
            self.send_now(None, works, lambda: perform(self.world.engine, deliveries, **how))
            return
        session, transaction = self.session(tx)
        if not now:
            perform(session, deliveries, **how)
            transaction.layers[-1].recorded += works
        elif self.try_plan(tx, works) is not None and not self.send_now(
            tx, works, lambda: perform(session.connection(), deliveries, **how)
        ):
            self.roll_back(tx, close=True)

    def hands(self) -> list[Delivery]:
        """All deliveries of late: those that are held first, the newest at the front; then those that have ended."""
        held = {(one.id, one.lease_id, one.deliveries) for one in self.books.messages.values()}
        newest = self.given[::-1]
        return sorted(newest, key=lambda one: (one.message_id, one.lease.id, one.deliveries) not in held)

    def stale(self) -> list[Delivery]:
        """Lost deliveries whose message is out again under the same lease: only the hand-out tells them apart."""
        held = {(one.id, one.lease_id): one.deliveries for one in self.books.messages.values()}
        return [one for one in self.given if held.get((one.message_id, one.lease.id), one.deliveries) != one.deliveries]

    @rule(which=st.integers(0, 3), verb=VERBS, session=st.booleans())
    @precondition(lambda self: self.stale())
    def settle_stale(self, which: int, verb: Verb, *, session: bool) -> None:
        """A token of an earlier hand-out to the same consumer, under the same lease, is lost."""
        delivery = self.stale()[which % len(self.stale())]
        if session:
            self.settle_in(3, [delivery], verb, timedelta(), now=False)
            self.commit_open(3)
            if 3 in self.open:
                self.roll_back(3, close=True)
        else:
            self.settle_in(None, [delivery], verb, timedelta(), now=True)

    @rule(tx=st.none() | TRANSACTIONS, which=st.integers(0, 20), out=st.booleans(), now=st.booleans())
    @precondition(lambda self: self.books.messages)
    def cancel(self, tx: int | None, which: int, *, out: bool, now: bool) -> None:
        """Withdraw a message that is committed, whether it can be or not; one that a consumer has, more often."""
        held = [one.id for one in self.books.messages.values() if one.lease_id is not None]
        ids = sorted(held if out and held else self.books.messages)
        work = Cancelled(ids[which % len(ids)])
        self._set(tx, work, partial(self.world.queues[0].cancel, message_id=work.message_id), now=now)

    @rule(tx=st.none() | TRANSACTIONS, channel=CHANNELS, policy=POLICIES, now=st.booleans())
    def configure(self, tx: int | None, channel: str, policy: ChannelPolicy, *, now: bool) -> None:
        """Set a limit, a rate or a weight, raise it, lower it, lift it."""
        change = partial(self.world.queues[0].configure_channel, channel=channel, policy=policy)
        self._set(tx, Configured(channel, policy), change, now=now)

    @rule(tx=st.none() | TRANSACTIONS, channel=st.none() | CHANNELS | CHANNELS, paused=st.booleans(), now=st.booleans())
    @precondition(lambda self: self.world.version > 1)
    def pause(self, tx: int | None, channel: str | None, *, paused: bool, now: bool) -> None:
        """Stop or go on serving a channel or the queue."""
        queue = self.world.queues[0]
        self._set(
            tx, Paused(channel, paused), partial(queue.pause if paused else queue.resume, channel=channel), now=now
        )

    @rule(tx=st.none() | TRANSACTIONS, most=st.none() | st.integers(1, 5), now=st.booleans())
    @precondition(lambda self: self.world.version > 1)
    def limit_queue(self, tx: int | None, most: int | None, *, now: bool) -> None:
        """Set a limit of the whole queue, raise it, lower it, lift it."""
        self._set(tx, Limited(most), partial(self.world.queues[0].configure, max_concurrency=most), now=now)

    @rule(tx=st.none() | TRANSACTIONS, history=st.sampled_from([True, True, False]), now=st.booleans())
    @precondition(lambda self: self.world.version > 1)
    def record_history(self, tx: int | None, *, history: bool, now: bool) -> None:
        """Keep every attempt from now on, or none; those that are under way end as they began."""
        self._set(tx, Recorded(history), partial(self.world.queues[0].configure, history=history), now=now)

    def _set(self, tx: int | None, work: Work, change: Callable[[Any], object], *, now: bool) -> None:
        if tx is None:
            self.send_now(None, [work], lambda: change(self.world.engine))
            return
        session, transaction = self.session(tx)
        if now:
            self.send_now(tx, [work], lambda: change(session.connection()))
        else:
            change(session)
            transaction.layers[-1].recorded.append(work)

    def resume_all(self) -> None:
        """Whatever is paused goes on."""
        for channel in [name for name, one in self.books.channels.items() if one.paused]:
            self.pause(None, channel, paused=False, now=True)
        if self.books.paused:
            self.pause(None, None, paused=False, now=True)

    @rule(tx=TRANSACTIONS)
    def savepoint(self, tx: int) -> None:
        """Go on inside a savepoint."""
        session, transaction = self.session(tx)
        session.begin_nested()
        transaction.layers.append(Layer())

    @rule(tx=TRANSACTIONS, keep=st.booleans())
    @precondition(lambda self: any(len(one.layers) > 1 for one in self.open.values()))
    def end_savepoint(self, tx: int, *, keep: bool) -> None:
        """Release the innermost savepoint, or roll back to it."""
        inside = sorted(number for number, one in self.open.items() if len(one.layers) > 1)
        tx = inside[tx % len(inside)]
        nested = self.sessions[tx].get_nested_transaction()
        assert nested is not None
        if keep:
            nested.commit()
        else:
            nested.rollback()
        self.open[tx].end_savepoint(keep=keep)

    @rule(tx=TRANSACTIONS)
    @precondition(lambda self: self.open)
    def commit(self, tx: int) -> None:
        """Commit an open transaction, open savepoints and all."""
        self.commit_open(sorted(self.open)[tx % len(self.open)])

    @rule(tx=TRANSACTIONS, close=st.booleans())
    @precondition(lambda self: self.open)
    def rollback(self, tx: int, *, close: bool) -> None:
        """Roll an open transaction back, or close its session."""
        self.roll_back(sorted(self.open)[tx % len(self.open)], close=close)
