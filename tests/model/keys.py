"""Rules of keys: debounce, a handler that arms itself again, the key of a dead letter that is taken meanwhile."""

from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.administration import Administration
from tests.model.business import ON_DUPLICATE, TRANSACTIONS, VERBS, WHEN
from tests.model.work import NOW

if TYPE_CHECKING:
    from sqlalchemy_fairqueue import Delivery
    from sqlalchemy_fairqueue.values.messages import OnDuplicate
    from tests.model.work import When

_HANDLER = 4


class Keys(Administration):
    """What happens to messages that others have named."""

    @rule(
        tx=st.none() | TRANSACTIONS,
        which=st.lists(st.integers(0, 8), min_size=1, max_size=3, unique=True),
        on_duplicate=ON_DUPLICATE,
        when=WHEN,
        now=st.booleans(),
    )
    @precondition(lambda self: any(one.key for one in self.books.messages.values()))
    def debounce(
        self, tx: int | None, which: list[int], on_duplicate: "OnDuplicate", when: "When", *, now: bool
    ) -> None:
        """The messages that hold keys are asked for again: recorded, at once, or in a transaction of their own."""
        keyed = [one for _, one in sorted(self.books.messages.items()) if one.key is not None]
        names = {(one.channel, one.key) for one in (keyed[number % len(keyed)] for number in which)}
        wanted = [self.wanted(channel, key, when, on_duplicate) for channel, key in sorted(names)]
        if tx is None:
            self.commit_messages(wanted)
            return
        for one in wanted:
            if now:
                self.add_now(tx, one)
            else:
                self.record(tx, one)

    @rule(which=st.integers(0, 5), verb=VERBS, when=WHEN, other=st.booleans())
    @precondition(lambda self: self.keyed_hands())
    def arm_again(self, which: int, verb: Verb, when: "When", *, other: bool) -> None:
        """A handler asks for its own message anew, or for another's, and ends its delivery in the same transaction."""
        hands = self.keyed_hands()
        delivery = hands[which % len(hands)]
        held = self.books.messages[delivery.message_id]
        keyed = [one for _, one in sorted(self.books.messages.items()) if one.key is not None]
        named = keyed[which % len(keyed)] if other else held
        self.record(_HANDLER, self.wanted(named.channel, named.key, when, "replace"))
        self.settle_in(_HANDLER, [delivery], verb, timedelta(), now=False)
        self.commit_or_roll_back(_HANDLER)

    @rule(which=st.integers(0, 5), on_duplicate=ON_DUPLICATE)
    @precondition(lambda self: any(one.key for one in self.books.dead.values()))
    def take_key_of_the_dead(self, which: int, on_duplicate: "OnDuplicate") -> None:
        """The key of a dead letter goes to another message, so that the letter cannot come back while that stands."""
        dead = [one for _, one in sorted(self.books.dead.items()) if one.key is not None]
        letter = dead[which % len(dead)]
        self.commit_messages([self.wanted(letter.channel, letter.key, NOW, on_duplicate)])

    def keyed_hands(self) -> list["Delivery"]:
        """Deliveries that are held, of messages with keys."""
        held = {
            (one.id, one.lease_id, one.deliveries) for one in self.books.messages.values() if one.key and one.lease_id
        }
        return [one for one in self.given if (one.message_id, one.lease.id, one.deliveries) in held]
