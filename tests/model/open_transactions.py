"""Open transactions of the machine: what they send and when they commit, as the plan predicted, or fail."""

from collections.abc import Callable
from typing import Any

from hypothesis import note

from tests.model.predictions import plan
from tests.model.stage import Stage
from tests.model.transactions import Plan, Scene, Transaction
from tests.model.work import Effects, Grouped, Wanted, Work
from tests.model.world import TICK


class OpenTransactions(Stage):
    """How work gets from a transaction into the books."""

    def session(self, tx: int) -> tuple[Any, Transaction]:
        """The open transaction of that number, begun if it is not."""
        if tx not in self.open:
            self.sessions[tx] = self.world.session()
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
        found = plan(self._scene(tx, own.sent, works), own, works)
        if found.error is None and found.waits:
            self.saw("would wait")
            note("    (not done: it would wait for a lock)")
            return None
        if found.waits and found.error is not None and found.error.__name__ != "LockOrderError":
            note("    (not done: it would wait for a lock, then fail)")
            return None
        return found

    def _scene(self, tx: int | None, own: Effects, works: list[Work]) -> Scene:
        channels = {one.channel for one in works if isinstance(one, Wanted)}
        bounded = {name for name, one in self.books.channels.items() if one.policy.max_backlog is not None}
        hidden: dict[str, int] = {}
        if channels & (bounded | own.made.keys()):
            # What it has sent itself, only it can see.
            hidden = self.world.hidden(self.sessions[tx].connection() if tx is not None and own.added else None)
        if hidden:
            self.saw("enqueue without knowing of all that waits")
        # Groups are made before the messages are enqueued.
        groups = {one.id for one in works if isinstance(one, Grouped)}
        now = self.world.now() + TICK * (1 + len(groups))
        return Scene(self.books, own, self.others(tx), now, self.brought, hidden)

    def send_now(self, tx: int | None, works: list[Work], send: Callable[[], Any]) -> bool:
        """Send works at once, in an open transaction or one of their own; return whether it went well, as predicted."""
        expected = self.try_plan(tx, works)
        if expected is None:
            return False
        went_well = self._ends_as_predicted(expected, send)
        if tx is None:
            self.apply(expected.effects)
        elif went_well:
            self.open[tx].note_sent(works, expected.effects)
        else:
            # Nothing was sent, but what was locked on the way stays locked.
            self.open[tx].layers[-1].sent.merge(Effects(messages=expected.effects.messages))
        return went_well

    def commit_open(self, tx: int) -> None:
        """Commit, unless it would wait: everything recorded is sent and everything sent takes effect, or nothing."""
        session, transaction = self.session(tx)
        expected = self.try_plan(tx, transaction.recorded)
        if expected is None:
            return
        if not self._ends_as_predicted(expected, session.commit, " at commit,"):
            self.roll_back(tx, close=False)
            return
        effects = transaction.sent
        effects.merge(expected.effects)
        session.close()
        del self.open[tx], self.sessions[tx]
        self.apply(effects)

    def commit_or_roll_back(self, tx: int) -> None:
        """End an open transaction: by a commit if that neither waits nor fails."""
        self.commit_open(tx)
        if tx in self.open:
            self.roll_back(tx, close=True)

    def roll_back(self, tx: int, *, close: bool) -> None:
        """Everything of the transaction is gone."""
        session = self.sessions.pop(tx)
        if not close:
            session.rollback()
        session.close()
        receipts = [work.receipt for work in self.open.pop(tx).recorded if isinstance(work, Wanted)]
        assert all(receipt.message_id is None for receipt in receipts), "a receipt knows a message that never was"

    def _ends_as_predicted(self, expected: Plan, perform: Callable[[], Any], where: str = "") -> bool:
        """Do it, and fail unless what is raised is the error of the plan, with what it tells; whether none is."""
        before, failure = self.world.now() if expected.effects.returned else 0, None
        try:
            perform()
        except Exception as error:
            if type(error) is not expected.error:
                raise
            failure = error
            self.saw(f"{type(error).__name__}{where} as predicted")
        assert failure or not expected.error, f"expected {expected.error}, nothing was raised"
        told = {name: getattr(failure, name) for name in expected.tells}
        assert told == expected.tells, f"{failure!r} does not tell {expected.tells}"
        if expected.effects.returned:
            self.windows |= dict.fromkeys(expected.effects.returned, (before, self.world.now()))
        return expected.error is None
