"""The machine of ordering keys: the rules of the machine with messages of few keys, and the ways in which one ends."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sqlalchemy_fairqueue import Delivery
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from tests.model.batches import Batching
from tests.model.books import Message
from tests.model.business import CHANNELS, DELAYS
from tests.model.consumers import LEASES
from tests.model.work import NOW, Cancelled, Purged, Wanted, When

End = Literal["complete", "retry", "release", "bury", "expire", "cancel", "purge", "move", "replace"]
Meets = Literal["nobody", "a dequeue", "a hearing", "both"]

_KEYS = ("x", None, "x", "y", None)
_ENDS: st.SearchStrategy[End] = st.sampled_from(
    ["complete", "complete", "retry", "release", "bury", "expire", "cancel", "purge", "move", "replace"]
)
_MEETS: st.SearchStrategy[Meets] = st.sampled_from(["nobody", "a dequeue", "a hearing", "both"])
_FOLLOWED: dict[str, Any] = {
    "channel": CHANNELS,
    "other": CHANNELS,
    "key": st.sampled_from(["x", "z"]),
    "count": st.integers(1, 3),
    "end": _ENDS,
    "delay": DELAYS,
    "limit": st.sampled_from([1, 3, 20]),
    "lease": LEASES,
    "meets": _MEETS,
    "keeps": st.sampled_from([True, True, True, False]),
}
_OPEN = 7
_FIRST = When(priority=9)
_LONGER = timedelta(seconds=40)


class OrderingMachine(Batching):
    """Of the messages of a channel with the same ordering key one is out, and each goes when it comes first (I36)."""

    def ordering_key_of(self, number: int) -> str | None:
        """Costs, kinds and headers go by the number, too, but not in this rhythm."""
        return _KEYS[number // 2 % len(_KEYS)]

    @rule(channel=CHANNELS, key=st.sampled_from(["x", "y"]), count=st.integers(1, 4))
    def enqueue_of_a_key(self, channel: str, key: str, count: int) -> None:
        """Several messages of one ordering key, in a row."""
        self._commit_of(key, [self.wanted(channel, None, NOW, max_attempts=3) for _ in range(count)])

    def _commit_of(self, key: str, wanted: list[Wanted]) -> None:
        self.commit_messages([replace(one, ordering_key=key) for one in wanted])

    @rule(which=st.integers(0, 20), channel=CHANNELS)
    @precondition(lambda self: self.books.messages)
    def move(self, which: int, channel: str) -> None:
        """A message is put into another channel, where its ordering key is another one."""
        held = [one.id for one in self.books.messages.values() if one.is_held_back]
        ids = sorted(held if held and which % 2 else self.books.messages)
        self._move(self.books.messages[ids[which % len(ids)]], channel)

    def _move(self, message: Message, channel: str) -> None:
        if message.key is not None or channel not in self.books.channels or message.id in self.others().messages:
            return
        before = self.world.now()
        told = self.queue.admin.move(self.world.engine, message.id, channel)
        if message.lease_id is not None or message.channel == channel:
            assert told == ("unchanged" if message.lease_id is None else "leased")
            return
        assert told == "moved"
        [[at]] = self.world.rows("select dequeue_at from fq_message where id = %(id)s", id=message.id)
        now = self.world.now()
        if message.is_held_back or (message.priority is not None and message.dequeue_at <= now):
            policy = self.books.channels[channel]
            earliest, latest = (policy.position(moment, message.priority) for moment in (before, now))
            assert earliest <= at <= latest, f"message {message.id} was moved to {at}"
            message.promoted_at = None
        else:
            assert at == message.dequeue_at, f"message {message.id} was moved to {at}"
        self.saw("a message that was held back was moved" if message.is_held_back else "a message was moved")
        message.channel, message.dequeue_at = channel, at

    @initialize(**_FOLLOWED)
    def begin_with_a_key(self, **how: Any) -> None:
        """There is a message that ends, and one that comes next, from the beginning."""
        self.follow_the_key(**how)

    @rule(**_FOLLOWED)
    def follow_the_key(
        self,
        channel: str,
        other: str,
        key: str,
        *,
        count: int,
        end: End,
        delay: int,
        limit: int,
        lease: timedelta,
        meets: Meets,
        keeps: bool,
    ) -> None:
        """Messages of a key are added, the first is taken, and one ends: that one, or one that waits. While the
        transaction of the end is open, another one may be added, and others may look for the next one and hold it back.
        """
        names = (None, "k3", None)[:count]
        self._commit_of(key, [self.wanted(channel, named, _FIRST, max_attempts=2) for named in names])
        batch = self.take(0, limit, lease)
        if meets == "nobody":
            self.take(1, 20, lease)
        self._end(end, key, other, timedelta(microseconds=delay), [one for one in batch if one.channel == channel])
        if _OPEN in self.open:
            self.saw(f"a message of a key ends: {end}, and meets {meets}")
            if meets in {"a dequeue", "both"}:
                self._commit_of(key, [self.wanted(channel, None, _FIRST)])
                self.take(1, 20, lease)
            if meets in {"a hearing", "both"}:
                self.hear()
            if keeps or meets == "nobody":
                self.commit_or_roll_back(_OPEN)
            else:
                self.roll_back(_OPEN, close=True)
        self.take(2, 20, lease)

    def _end(self, end: End, key: str, other: str, delay: timedelta, out: list[Delivery]) -> None:
        """End a message that is out, or one that waits; the transaction stays open, if the call has not its own."""
        waiting = [
            one for _, one in sorted(self.books.messages.items()) if one.ordering_key == key and one.lease_id is None
        ]
        if end in {"move", "replace"}:
            waiting = [one for one in waiting if (one.key is None) == (end == "move")]
        match end:
            case "expire":
                self.world.advance(_LONGER)
            case "move" if waiting:
                self._move(waiting[0], other)
            case "replace" if waiting:
                asked = self.wanted(waiting[0].channel, waiting[0].key, NOW, "replace")
                self.add_now(_OPEN, replace(asked, ordering_key="w"))
            case "purge" if waiting:
                perform: Any = partial(self.queue.purge, channel=waiting[0].channel)
                self.change(_OPEN, Purged(waiting[0].channel), perform, now=True)
            case "cancel" if waiting:
                perform = partial(self.queue.cancel, message_id=waiting[0].id)
                self.change(_OPEN, Cancelled(waiting[0].id), perform, now=True)
            case "complete" | "retry" | "release" | "bury" if out:
                pause = delay if end in {"retry", "release"} else timedelta()
                self.settle_in(_OPEN, out, Verb(end), pause, now=True)
