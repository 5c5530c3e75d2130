"""Rules of bad rows: the owner plants one, and mends it after a dequeue has paused its channel."""

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.allowances import Offer, offers
from tests.model.books import Books
from tests.model.letters import Letters
from tests.model.work import Effects
from tests.model.world import TICK

# No dequeue can count one more attempt. A letter holds the first message; a check of its table refuses the second.
_SPOIL = {
    "dead": "update fq_message set attempts = 2147483647 where id = %(id)s",
    "paused": "update fq_message set attempts = 2147483647, max_attempts = 0 where id = %(id)s",
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
        if how == "paused":
            message.max_attempts = 0
        self.books.spoilt[message.id] = "dead" if message.max_attempts else "paused"
        self.saw("a message was spoilt")

    @rule(which=st.integers(0, 5))
    @precondition(lambda self: "paused" in self.books.spoilt.values())
    def mend(self, which: int) -> None:
        """The owner gives a message that no letter can hold good values again."""
        locked = self.others().messages
        bad = sorted(one for one, what in self.books.spoilt.items() if what == "paused" and one not in locked)
        if not bad:
            return
        message = self.books.messages[bad[which % len(bad)]]
        self.world.rows("update fq_message set attempts = 0, max_attempts = 3 where id = %(id)s", id=message.id)
        message.attempts, message.max_attempts = 0, 3
        del self.books.spoilt[message.id]
        self.saw("a bad message was mended")

    def mend_all(self) -> None:
        """No message is bad any more but for those that letters can hold."""
        while "paused" in self.books.spoilt.values():
            self.mend(0)

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
        """Note what a dequeue has set aside: bad rows, and no others; whether there was any."""
        if not self.books.spoilt:
            assert failures == 0
            return False
        dead = self.world.deaths().keys() - self.books.dead.keys()
        letters = {one for one, what in self.books.spoilt.items() if what == "dead"}
        assert dead <= letters, f"set aside: {dead}, bad were {letters}"
        stuck = {self.books.messages[one].channel for one, what in self.books.spoilt.items() if what == "paused"}
        paused = {one for one in self.world.set_aside() if not self.books.channels[one].paused}
        assert paused <= stuck, f"set aside: {paused}, bad messages are in {stuck}"
        found = len(dead) + len(paused)
        assert failures <= found, f"{failures} statements failed over {found} bad rows"
        for one in sorted(dead):
            self.books.end(one, "dead")
            self.saw("set aside: dead")
        for name in paused:
            self.books.channels[name].paused = True
            self.saw("set aside: paused")
        return found > 0

    def follow_rates(self) -> None:
        """A dequeue that set rows aside took its messages at an instant that is not known here."""
        for name, channel in self.books.channels.items():
            channel.configure(channel.policy, self.world.state(name).rate_at)
        self.follow_queue_rate()
