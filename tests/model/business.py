"""Rules of business transactions: work recorded or sent at once, savepoints, commit, rollback."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Enqueue, Receipt
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from sqlalchemy_fairqueue.values.messages import FairBy, OnDuplicate
from sqlalchemy_fairqueue.values.policies import OnFull
from tests.model.open_transactions import OpenTransactions
from tests.model.transactions import Layer
from tests.model.turns import cost_of, kind_of
from tests.model.work import NOW, QUEUE, Cancelled, Purged, Settled, Wanted, When, Work

CHANNELS = st.sampled_from(["a", "b", "c", "d", "e"])
TRANSACTIONS = st.integers(0, 2)
WHEN = st.just(NOW) | st.builds(When, st.sampled_from([0, 0, 5_000, 2_000_000]), st.none() | st.sampled_from([1, 9]))
ON_DUPLICATE: st.SearchStrategy[OnDuplicate] = st.sampled_from(["skip", "raise", "replace", "replace"])
MESSAGES = st.tuples(CHANNELS, st.none() | st.sampled_from(["k1", "k2"]), WHEN, ON_DUPLICATE)
KEYED = st.tuples(st.sampled_from(["a", "b", "b", "c"]), st.sampled_from(["k1", "k2"]), WHEN, ON_DUPLICATE)
BROUGHT = st.sampled_from([None, None, (10, "raise"), (6, "drop")])
VERBS = st.sampled_from(list(Verb))
DELAYS = st.sampled_from([0, 0, 3_000, 1_000_000])


def arguments(wanted: Wanted) -> dict[str, Any]:
    """What ``enqueue`` is called with."""
    return {
        "channel": wanted.channel,
        "payload": wanted.number,
        "kind": kind_of(wanted.number),
        "headers": {"number": wanted.number} if wanted.number % 2 else None,
        "key": wanted.key,
        "on_duplicate": wanted.on_duplicate,
        "delay": timedelta(microseconds=wanted.when.delay) if wanted.when.delay else None,
        "priority": wanted.when.priority,
        "max_attempts": wanted.max_attempts,
        "cost": cost_of(wanted.number),
        "ordering_key": wanted.ordering_key,
    }


class Business(OpenTransactions):
    """What applications do in their own transactions."""

    def wanted(
        self, channel: str, key: str | None, when: When, on_duplicate: OnDuplicate = "skip", max_attempts: int = 2
    ) -> Wanted:
        """The next message to be enqueued, with a number of its own."""
        self.numbers += 1
        if key is None:
            on_duplicate = "skip"
        return Wanted(
            *(self.numbers, channel, key, when, max_attempts, on_duplicate, Receipt(channel)),
            ordering_key=self.ordering_key_of(self.numbers),
        )

    def ordering_key_of(self, _: int) -> str | None:
        """The ordering key of the message of this number; here none has one."""
        return None

    @initialize(
        backlog=st.dictionaries(CHANNELS, st.integers(1, 12), min_size=1),
        bound=BROUGHT,
        fair_by=st.sampled_from(["messages", "cost"]),
        results=st.booleans(),
        metered=st.booleans(),
    )
    def begin_with_a_backlog(
        self,
        backlog: dict[str, int],
        bound: tuple[int, OnFull] | None,
        fair_by: FairBy,
        *,
        results: bool,
        metered: bool,
    ) -> None:
        """There is something to serve from the first step on; the application's queue may bring a bound.

        *metered*: rates may be in cost, and no settlement corrects a cost: when one is heard of is not predicted.
        """
        self.metered = metered
        if results and not self.given:
            # What was delivered before keeps none.
            self.books.keeps_results = True
            self.queue.configure(self.world.engine, result_retention=timedelta(days=1))
        if fair_by == "cost":
            self.turns.by_cost = True
            self.queue.configure(self.world.engine, fair_by=fair_by)
            self.saw("channels were served by cost")
        if bound is not None:
            self.brought = ChannelPolicy(max_backlog=bound[0], on_full=bound[1])
            self.world.queues[0] = self.world.queue(QUEUE, self.brought)
        for channel, count in backlog.items():
            self.enqueue_and_commit(channel, count)

    @rule(channel=CHANNELS, count=st.integers(1, 8))
    def enqueue_and_commit(self, channel: str, count: int) -> None:
        """A short transaction of its own: the common case, and a backlog to be fair about."""
        self.commit_messages([self.wanted(channel, None, NOW, max_attempts=3) for _ in range(count)])

    @rule(messages=st.lists(KEYED, min_size=1, max_size=4))
    def enqueue_keys_and_commit(self, messages: list[tuple[str, str | None, When, OnDuplicate]]) -> None:
        """A short transaction that adds messages with keys, or meets those that stand."""
        self.commit_messages([self.wanted(*message) for message in messages])

    def commit_messages(self, messages: Iterable[Wanted]) -> None:
        """Enqueue messages in a short transaction of their own, if that neither waits nor fails."""
        session, transaction = self.session(-1)
        for wanted in messages:
            self.record(-1, wanted)
        assert transaction.recorded
        assert session.in_transaction()
        self.commit_or_roll_back(-1)

    @rule(tx=TRANSACTIONS, messages=st.lists(MESSAGES, min_size=1, max_size=4), max_attempts=st.integers(1, 3))
    def enqueue(self, tx: int, messages: list[tuple[str, str | None, When, OnDuplicate]], max_attempts: int) -> None:
        """Recorded: sent with the commit."""
        self.session(tx)
        for message in messages:
            self.record(tx, self.wanted(*message, max_attempts=max_attempts))

    def record(self, tx: int, wanted: Wanted) -> None:
        """Record a message in an open transaction."""
        session, transaction = self.session(tx)
        [receipt] = self.queue.enqueue_many(session, [Enqueue(**arguments(wanted))])
        if wanted.key is not None:
            holder = self.books.holder_of(wanted.channel, wanted.key)
            if holder is not None and holder.lease_id is None:
                self.awaited.add(wanted.number)
        transaction.layers[-1].recorded.append(replace(wanted, receipt=receipt))

    @rule(tx=TRANSACTIONS, message=MESSAGES)
    def enqueue_at_once(self, tx: int, message: tuple[str, str | None, When, OnDuplicate]) -> None:
        """Sent at once: a first use or a key is held until the transaction ends."""
        self.add_now(tx, self.wanted(*message))

    def add_now(self, tx: int, wanted: Wanted) -> None:
        """Enqueue a message at once in an open transaction."""
        session, transaction = self.session(tx)
        receipt = wanted.receipt

        def send() -> None:
            receipt.message_id = self.queue.enqueue(session.connection(), **arguments(wanted)).message_id

        if self.send_now(tx, [wanted], send):
            receipt.outcome = transaction.sent.added[-1].outcome
            receipt.created = receipt.outcome == "created"

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
        how: dict[str, Any] = {"delay": delay} if delay else {}
        if not self.metered and verb is not Verb.RELEASE and deliveries[0].message_id % 5 == 0:
            how["cost"] = deliveries[0].message_id % 7
            for one in deliveries:
                self.turns.corrected(one.channel)
        perform = getattr(self.queue, verb.value)
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
            self.commit_or_roll_back(3)
        else:
            self.settle_in(None, [delivery], verb, timedelta(), now=True)

    @rule(tx=st.none() | TRANSACTIONS, which=st.integers(0, 20), out=st.booleans(), now=st.booleans())
    @precondition(lambda self: self.books.messages)
    def cancel(self, tx: int | None, which: int, *, out: bool, now: bool) -> None:
        """Withdraw a message that is committed, whether it can be or not; one that a consumer has, more often."""
        held = [one.id for one in self.books.messages.values() if one.lease_id is not None]
        ids = sorted(held if out and held else self.books.messages)
        work = Cancelled(ids[which % len(ids)])
        self.change(tx, work, partial(self.queue.cancel, message_id=work.message_id), now=now)

    def change(self, tx: int | None, work: Work, perform: Callable[[Any], Any], *, now: bool) -> None:
        """Do something in an open transaction, recorded or at once, or (tx None) in a transaction of its own."""

        def send(where: object) -> None:
            receipt = perform(where)
            if isinstance(work, Cancelled | Purged):
                work.told.append(receipt)

        if tx is None:
            self.send_now(None, [work], lambda: send(self.world.engine))
            return
        session, transaction = self.session(tx)
        if now:
            self.send_now(tx, [work], lambda: send(session.connection()))
        else:
            send(session)
            transaction.layers[-1].recorded.append(work)

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
