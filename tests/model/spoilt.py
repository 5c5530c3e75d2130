"""Rules of bad rows: the owner plants one, dequeues set it aside, an operator releases it or deletes it."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.allowances import Offer, offers
from tests.model.books import Books
from tests.model.letters import Letters
from tests.model.work import Effects
from tests.model.world import TICK

# No dequeue can count one more attempt. A letter holds the first message; a check refuses the second.
_SPOIL = {
    "dead": "update fq_message set attempts = 2147483647 where id = %(id)s",
    "quarantined": "update fq_message set attempts = 2147483647, max_attempts = 0 where id = %(id)s",
}
_LAST = 2**31 - 1
# So long take a dequeue that fails, what sets rows aside, and the next dequeue.
_STEPS = 100 * TICK
_MOST = 100


def _offered(books: Books, others: Effects, now: int) -> tuple[dict[str, Offer], int]:
    return offers(books, others, now), books.room(_MOST, now)


class Spoiling(Letters):
    """What becomes of rows that no function would have written."""

    @rule(which=st.integers(0, 20), how=st.sampled_from(sorted(_SPOIL)))
    @precondition(lambda self: any(one.lease_id is None for one in self.books.messages.values()))
    def spoil(self, which: int, how: str) -> None:
        """Somebody writes to the table: a message that a letter can hold, or one that nothing can."""
        locked = self.others().messages
        ready = sorted(one.id for one in self.books.messages.values() if one.lease_id is None and one.id not in locked)
        if not ready:
            return
        message = self.books.messages[ready[which % len(ready)]]
        self.world.rows(_SPOIL[how], id=message.id)
        message.attempts = _LAST
        if how == "quarantined":
            message.max_attempts = 0
        self.books.spoilt[message.id] = "dead" if message.max_attempts else "quarantined"
        self.saw("a message was spoilt")

    @rule(which=st.integers(0, 5), release=st.booleans(), repaired=st.booleans())
    @precondition(lambda self: self.books.quarantined)
    def end_quarantine(self, which: int, *, release: bool, repaired: bool) -> None:
        """A message that can be delivered again comes back without its key; another one stays, or is deleted."""
        ids = sorted(self.books.quarantined)
        message = self.books.quarantined[ids[which % len(ids)]]
        if repaired:
            message.max_attempts = 3
        self.world.rows(
            "update fq_quarantine set enqueued_at = %(at)s, max_attempts = 3 where message_id = %(id)s",
            at=message.enqueued_at if repaired else -1,
            id=message.id,
        )
        before = self.world.now()
        queue = self.world.queues[0]
        perform = queue.release_quarantined if release else queue.purge_quarantined
        told = perform(self.world.engine, message.id)
        outcome = ("released" if repaired else "refused") if release else "deleted"
        assert told == {message.id: outcome}
        self.saw(f"quarantine: {outcome}")
        if outcome == "released":
            [[at]] = self.world.rows("select dequeue_at from fq_message where id = %(id)s", id=message.id)
            outweighed = self.books.channels[message.channel].position(0, message.priority)
            if message.priority is not None and outweighed == -message.priority:
                assert at == outweighed, "a message has its priority again"
            else:
                assert before < at - outweighed <= self.world.now(), "a message is due when it is released"
            self.books.release_quarantined(message.id, at)
        elif outcome == "deleted":
            del self.books.quarantined[message.id]

    def wait_for_quiet(self) -> None:
        """Put the clock forward until nothing becomes due while a dequeue and what it sets aside go on."""
        if not self.books.spoilt:
            return
        for _ in range(_MOST):
            now = self.world.now()
            others = self.others()
            expire = any(0 < one.expires_at - now <= _STEPS for one in self.books.leases.values())
            if not expire and _offered(self.books, others, now) == _offered(self.books, others, now + _STEPS):
                return
            self.world.advance(timedelta(microseconds=_STEPS))
        raise AssertionError("the queue never comes to rest")

    def note_set_aside(self, failures: int) -> bool:
        """Take what a dequeue has set aside out of the books: bad rows, and no others; whether there was any."""
        if not self.books.spoilt:
            assert failures == 0
            return False
        dead = self.world.deaths().keys() - self.books.dead.keys()
        quarantined = set(self.world.quarantined()) - self.books.quarantined.keys()
        found = dict.fromkeys(dead, "dead") | dict.fromkeys(quarantined, "quarantined")
        assert found.items() <= self.books.spoilt.items(), f"set aside: {found}, bad were {self.books.spoilt}"
        assert failures <= len(found), f"{failures} statements failed over {len(found)} bad rows"
        for one in sorted(found):
            self.books.end(one, "dead" if one in dead else "quarantined")
            self.saw(f"set aside: {found[one]}")
        return bool(found)

    def follow_rates(self) -> None:
        """A dequeue that set rows aside took its messages at an instant that is not known here."""
        for name, channel in self.books.channels.items():
            channel.configure(channel.policy, self.world.state(name).rate_at)
        self.follow_queue_rate()
