"""Rules of several steps each, which chance alone would seldom bring together."""

from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.administration import BOUNDS
from tests.model.business import CHANNELS, KEYED
from tests.model.consumers import Consuming
from tests.model.work import NOW, When
from tests.model.world import CONSUMERS

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.messages import OnDuplicate


class Stories(Consuming):
    """What happens in a row."""

    @rule(consumer=st.integers(0, CONSUMERS - 1), verb=st.sampled_from([Verb.RETRY, Verb.RELEASE]))
    @precondition(lambda self: self.books.messages)
    def take_again(self, consumer: int, verb: Verb) -> None:
        """A consumer gives back what it took and takes it again under the same lease: the first tokens are lost."""
        batch = self.take(consumer, 2, timedelta(seconds=30))
        if batch:
            self.settle_in(None, batch, verb, timedelta(), now=True)
            self.take(consumer, 20, timedelta(seconds=1))

    @rule(
        message=KEYED,
        verb=st.sampled_from([Verb.BURY, Verb.BURY, Verb.RETRY]),
        taken=st.sampled_from(["tried", "tried", "released", "no"]),
    )
    def ask_again(self, message: tuple[str, str, When, "OnDuplicate"], verb: Verb, taken: str) -> None:
        """A message with a key is tried in vain and asked for again; if it died, it is redriven besides."""
        channel, key, when, on_duplicate = message
        self.commit_messages([self.wanted(channel, key, When(priority=9))])
        batch = self.take(0, 5, timedelta(seconds=30))
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
            batch = self.take(0, 1, timedelta(seconds=1))
            if batch:
                self.settle_in(None, batch, verb, timedelta(), now=True)

    @rule(consumer=st.integers(0, CONSUMERS - 1), which=st.integers(0, 20))
    @precondition(lambda self: self.books.messages)
    def complete_what_is_withdrawn(self, consumer: int, which: int) -> None:
        """A message is withdrawn while a consumer holds some, and all of them are completed."""
        batch = self.take(consumer, 3, timedelta(seconds=30))
        if batch:
            self.cancel(None, which, out=True, now=True)
            self.settle_in(None, batch, Verb.COMPLETE, timedelta(), now=True)

    @rule(channel=CHANNELS, resumed=st.booleans())
    def pause_for_a_while(self, channel: str, *, resumed: bool) -> None:
        """An urgent message comes to a channel that is paused, and somebody hears of it; it may be resumed."""
        self.pause(None, channel, paused=True, now=True)
        self.commit_messages([self.wanted(channel, None, When(priority=9))])
        self.take(1, 3, timedelta(seconds=30))
        if resumed:
            self.pause(None, channel, paused=False, now=True)

    @rule(message=KEYED, bound=BOUNDS, count=st.integers(1, 3), heard=st.booleans())
    def ask_when_full(
        self, message: tuple[str, str, When, "OnDuplicate"], bound: ChannelPolicy, count: int, *, heard: bool
    ) -> None:
        """A channel gets a bound and is filled, a message at a time; then what somebody holds is asked for again."""
        channel, key, when, on_duplicate = message
        self.commit_messages([self.wanted(channel, key, When(priority=9))])
        self.take(0, 5, timedelta(seconds=30))
        self.configure(None, channel, bound, now=True)
        for _ in range(count):
            self.commit_messages([self.wanted(channel, None, NOW)])
            if heard:
                self.hear()
        self.commit_messages([self.wanted(channel, key, when, on_duplicate)])
