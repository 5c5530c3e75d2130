"""The machine: transactions, consumers, foreign locks and time, in any order; at the end everything is drained."""

import sys
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from sqlalchemy import text

from sqlalchemy_fairqueue.reports import Deliveries
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.business import CHANNELS, TRANSACTIONS
from tests.model.roles import Granted
from tests.model.work import QUEUE, Purged, Settled, Work

_LOCKS = {
    "message": "select id from fq_message where id = :which for update skip locked",
    "state": (
        "select s.channel_id from fq_channel_state s join fq_channel c on c.id = s.channel_id "
        "where c.name = :which for no key update of s skip locked"
    ),
    "lease": "select id from fq_lease where id = :which for update skip locked",
    "queue": "select true from fq_queue_state where queue = :which for no key update skip locked",
}
_LOOKS = 18


class FairQueueMachine(Granted):
    """The rules of foreign locks and of time, and the end."""

    @rule(
        tx=TRANSACTIONS,
        kind=st.sampled_from(["message", "message", "state", "lease", "queue"]),
        which=st.integers(0, 20),
        channel=CHANNELS,
    )
    def lock(self, tx: int, kind: Literal["message", "state", "lease", "queue"], which: int, channel: str) -> None:
        """Somebody locks a row and keeps it locked until the transaction ends."""
        if kind == "queue" and not self.books.limits.limited:
            return
        session, transaction = self.session(tx)
        ready = [one.id for one in self.books.messages.values() if one.lease_id is None]
        messages = ready if ready and which % 3 else self.books.messages
        # Leases in the order in which they were made: their ids are random, and a program must mean the same each time.
        rows: dict[str, list[Any]] = {"message": sorted(messages), "lease": list(self.books.leases), "state": [channel]}
        known = rows.get(kind, [QUEUE])
        if not known:
            return
        wanted, sent = known[which % len(known)], transaction.layers[-1].sent
        got = session.connection().execute(text(_LOCKS[kind]), {"which": wanted}).scalars().all()
        if got and kind == "queue":
            sent.queue_state = True
        elif got:
            locked: dict[str, set[Any]] = {"message": sent.messages, "lease": sent.leases, "state": sent.states}
            locked[kind].add(wanted)

    @rule(tx=TRANSACTIONS, which=st.integers(0, 20))
    @precondition(lambda self: self.books.messages)
    def purge_around(self, tx: int, which: int) -> None:
        """Channels are purged while somebody keeps messages of them locked that consumers have heard of."""
        self.hear()
        self.lock(tx, "message", which, "a")
        locked = self.others().messages & self.books.messages.keys()
        for channel in sorted({self.books.messages[one].channel for one in locked}):
            self.change(None, Purged(channel), partial(self.queue.purge, channel=channel), now=True)

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
                self.mend_all()
                self.resume_all()
                self._drain()
        finally:
            for session in self.sessions.values():
                session.close()

    def _drain(self) -> None:
        while batch := self._drained():
            works: list[Work] = [Settled(one, Verb.COMPLETE, 0) for one in batch]
            assert self.send_now(None, works, partial(self.queue.complete, self.world.engine, batch))
            self.tables_agree_with_the_books()
        self.tables_agree_with_the_books()
        assert not self.books.messages, f"forgotten: {self.books.messages}"
        assert not (left := self.world.left()), "\n".join(left)

    def _drained(self) -> Deliveries:
        """The next batch, looked for when the last one said; empty when nothing is said to be scheduled any more.

        Where a lease holds the slots of a shared limit, the queue is told to look again soon: it looks less and less
        often, until that lease has ended.
        """
        for look in range(_LOOKS):
            batch = self.take(0, 20, timedelta(seconds=1))
            if batch or batch.due_in is None:
                return batch
            self.world.advance(max(batch.due_in, timedelta(milliseconds=2**look)))
        pytest.fail(f"looked {_LOOKS} times when something was said to be due, and found nothing")
