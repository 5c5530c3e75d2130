"""What the rules of the machine stand on: the world, the books, and the transactions that are open."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import event, note
from hypothesis.stateful import RuleBasedStateMachine, invariant
from sqlalchemy import Row
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.unit_of_work import Verb
from tests.model.books import Books, Channel, Message
from tests.model.transactions import Plan, Transaction, plan
from tests.model.turns import Turns
from tests.model.work import Addition, Effects, Settled, Wanted, Work
from tests.model.world import World

if TYPE_CHECKING:
    from sqlalchemy_fairqueue import Delivery


class Stage(RuleBasedStateMachine):
    """State of one example. ``world`` is given by the test that runs the machine."""

    world: ClassVar[World]
    tally: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.tally["examples"] += 1
        self.world.reset()
        self.books = Books()
        self.turns = Turns()
        self.sessions: dict[int, Session] = {}
        self.open: dict[int, Transaction] = {}
        self.windows: dict[int, tuple[int, int]] = {}
        self.given: list[Delivery] = []
        self.numbers = 0

    def saw(self, what: str) -> None:
        """Count what happened, to know what the programs reach."""
        event(what)
        self.tally[what] += 1

    def session(self, tx: int) -> tuple[Session, Transaction]:
        """The open transaction of that number, begun if it is not."""
        if tx not in self.open:
            self.sessions[tx] = Session(self.world.engine)
            self.sessions[tx].begin()
            self.open[tx] = Transaction()
        return self.sessions[tx], self.open[tx]

    def others(self, tx: int | None = None) -> Effects:
        """What all open transactions but one have done and locked."""
        found = Effects()
        for number, transaction in self.open.items():
            if number != tx:
                found.merge(transaction.sent)
        return found

    def try_plan(self, tx: int | None, works: list[Work]) -> Plan | None:
        """What sending the works would do; None, and a note, if it would wait."""
        own = self.open[tx] if tx is not None else Transaction()
        found = plan(self.books, own, self.others(tx), works, self.world.version)
        if found.error is None and found.waits:
            self.saw("would wait")
            note("    (not done: it would wait for a lock)")
            return None
        if found.waits and found.error is not None and found.error.__name__ != "LockOrderError":
            note("    (not done: it would wait for a lock, then fail)")
            return None
        return found

    def send_now(self, tx: int | None, works: list[Work], send: Callable[[], Any]) -> bool:
        """Send works at once, in an open transaction or one of their own; return whether it went well, as predicted."""
        expected = self.try_plan(tx, works)
        if expected is None:
            return False
        before = self.world.now()
        failure = None
        try:
            send()
        except Exception as error:
            if expected.error is None or type(error) is not expected.error:
                raise
            failure = error
            self.saw(f"{type(error).__name__} as predicted")
        else:
            assert expected.error is None, f"expected {expected.error}, nothing was raised"
        self._note_window(expected.effects, before)
        if tx is None:
            self.apply(expected.effects)
        elif failure is None:
            self.open[tx].note_sent(works, expected.effects)
        return failure is None

    def commit_open(self, tx: int) -> None:
        """Commit, unless it would wait: everything recorded is sent and everything sent takes effect, or nothing."""
        session, transaction = self.session(tx)
        expected = self.try_plan(tx, transaction.recorded)
        if expected is None:
            return
        before = self.world.now()
        try:
            session.commit()
        except Exception as error:
            if expected.error is None or type(error) is not expected.error:
                raise
            self.saw(f"{type(error).__name__} at commit, as predicted")
            self.roll_back(tx, close=False)
            return
        assert expected.error is None, f"expected {expected.error}, the commit went through"
        self._note_window(expected.effects, before)
        effects = transaction.sent
        effects.merge(expected.effects)
        session.close()
        del self.open[tx], self.sessions[tx]
        self.apply(effects)

    def roll_back(self, tx: int, *, close: bool) -> None:
        """Everything of the transaction is gone."""
        session = self.sessions.pop(tx)
        if not close:
            session.rollback()
        session.close()
        receipts = [work.receipt for work in self.open.pop(tx).recorded if isinstance(work, Wanted)]
        assert all(receipt.message_id is None for receipt in receipts), "a receipt knows a message that never was"

    def _note_window(self, effects: Effects, before: int) -> None:
        after = self.world.now()
        self.windows |= dict.fromkeys(effects.returned, (before, after))

    def apply(self, effects: Effects) -> None:
        """A commit: the books take what it did, after a look at the rows that it left."""
        rows = self.world.messages()
        for name in effects.made:
            self.books.channels[name] = Channel()
        for message_id, outcome in effects.attempts.items():
            self.books.record(message_id, outcome)
        for message_id, how in effects.ended.items():
            self.books.end(message_id, how)
        for message_id, work in effects.returned.items():
            self._give_back(message_id, work, rows[message_id])
        self._redrive(effects, rows)
        for addition in effects.added:
            self._add(addition, rows)
        for message_id in effects.withdrawn & self.books.messages.keys():
            message = self.books.messages[message_id]
            message.cancelled, message.key = True, None
        self._change(effects)

    def _redrive(self, effects: Effects, rows: dict[int, Row[Any]]) -> None:
        last = 0
        for message_id, (before, after) in effects.redriven.items():
            at = rows[message_id].dequeue_at
            assert before < at <= after, "a dead letter is due when it is redriven"
            assert at > last, "the oldest death comes first"
            last = at
            self.books.redrive(message_id, at)
        for message_id in effects.purged_letters:
            self.books.purge_letter(message_id)

    def _change(self, effects: Effects) -> None:
        for configured in effects.configured:
            channel = self.books.channels[configured.channel]
            self._mark(configured.marked, 1)
            release_at = self.world.state(configured.channel).release_at
            assert release_at <= channel.release_at
            channel.configure(configured.policy, release_at)
            self.turns.configured(configured.channel)
        for paused in effects.paused:
            if paused.channel is None:
                self.books.paused = paused.paused
            else:
                self.books.channels[paused.channel].paused = paused.paused
                self.turns.configured(paused.channel)
        for recorded in effects.recorded:
            self.books.records = recorded.history
        for limited in effects.limited:
            self.books.limit = limited.most
            self._mark(limited.marked, 2)

    def _mark(self, messages: frozenset[int], slot: int) -> None:
        for message_id in messages & self.books.messages.keys():
            if self.books.messages[message_id].lease_id is not None:
                self.books.messages[message_id].slots |= slot

    def _give_back(self, message_id: int, work: Settled, row: Row[Any]) -> None:
        message = self.books.messages[message_id]
        message.give_back(counted=work.verb is Verb.RETRY)
        if work.delay:
            before, after = self.windows[message_id]
            assert before + work.delay <= row.dequeue_at <= after + work.delay, "a delay counts from the call"
            message.dequeue_at = row.dequeue_at

    def _add(self, addition: Addition, rows: dict[int, Row[Any]]) -> None:
        wanted, receipt = addition.wanted, addition.wanted.receipt
        assert receipt.message_id is not None
        if addition.existing is not None:
            first = addition.existing.receipt.message_id if isinstance(addition.existing, Wanted) else addition.existing
            assert (receipt.message_id, receipt.created) == (first, False), f"the key {wanted.key!r} stood already"
            return
        assert receipt.created is True
        if receipt.message_id not in rows:
            pytest.fail(f"message {receipt.message_id} was committed and is not there")
        row = rows[receipt.message_id]
        if wanted.when < 0:
            at = wanted.when
        elif wanted.when > 0 or not addition.keyed:
            at = row.enqueued_at + wanted.when
        else:
            at = row.enqueued_at - addition.count + addition.ordinal
        self.books.add(Message(row.id, wanted.channel, wanted.number, wanted.key, at, wanted.max_attempts))

    @invariant()
    def tables_agree_with_the_books(self) -> None:
        """Every committed message is where the model has it, and the invariants of docs/invariants.md hold."""
        found = {
            id_: Message(*(getattr(row, name) for name in Message.__slots__))
            for id_, row in self.world.messages().items()
        }
        assert found == self.books.messages
        assert self.world.dead().keys() == self.books.dead.keys()
        assert self.world.history() == sorted(self.books.history), "one row an attempt that began while it was recorded"
        self.books.check_balance()
        broken = self.world.broken()
        assert not broken, "\n".join(broken)
