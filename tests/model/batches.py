"""Rules of batches: a handler gets the messages that follow the one that a consumer has taken."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sqlalchemy_fairqueue import Delivery
from tests.model.allowances import size_of
from tests.model.books import Message
from tests.model.business import CHANNELS
from tests.model.consumers import BYTES
from tests.model.machine import FairQueueMachine
from tests.model.rates import SharedRoom
from tests.model.turns import cost_of, kind_of
from tests.model.work import When
from tests.model.world import CONSUMERS, TICK

_LEASE = timedelta(seconds=30)
_FIRST = When(priority=9)
_MORE: dict[str, Any] = {
    "consumer": st.integers(0, CONSUMERS - 1),
    "limit": st.integers(1, 6),
    "max_cost": st.none() | st.integers(1, 12),
    "max_bytes": BYTES,
}
_BATCH = _MORE | {"channel": CHANNELS, "key": st.sampled_from(["x", None]), "count": st.integers(2, 5)}
# So long takes a call, also one that hears signals first.
_CALL = 60 * TICK
Head = tuple[int, int] | None


class Batching(FairQueueMachine):
    """Who holds a message takes those that follow it: in its ordering key, or in its channel if it has none."""

    @initialize(**_BATCH)
    def begin_with_a_batch(self, **how: Any) -> None:
        """There are messages that follow each other, from the beginning."""
        self.add_and_take_more(**how)

    @rule(**_BATCH)
    def add_and_take_more(self, channel: str, key: str | None, count: int, **how: Any) -> None:
        """Messages of one ordering key, or of none, are added in a row; somebody takes one, and what follows it."""
        if not self.books.spoilt:
            wanted = [self.wanted(channel, None, _FIRST, max_attempts=3) for _ in range(count)]
            self.commit_messages([replace(one, ordering_key=key) for one in wanted])
            self.take_more(None, **how)

    @rule(which=st.none() | st.integers(0, 8), **_MORE)
    @precondition(lambda self: self.books.messages and not self.books.spoilt)
    def take_more(self, which: int | None, *, consumer: int, limit: int, max_cost: int | None, max_bytes: int) -> None:
        """All that may follow a message is given: of one that is taken now, or was taken once."""
        given = self.take(consumer, 1, _LEASE) if which is None else self.hands()
        if not given:
            return
        first = given[(which or 0) % len(given)]
        moments = [one.expires_at for one in self.books.leases.values()]
        moments += [one.dequeue_at for one in self.books.messages.values()]
        now = self.world.pass_by(moments, _CALL) + TICK
        others = self.others()
        if first.lease.id in others.leases or self.books.leases[first.lease.id].expires_at <= now:
            return
        if first.keeps_result != self.books.keeps_results:
            # What follows ends as the first one does.
            return
        message = self._newest(first)
        head: Head = None
        attends = message is not None and self.books.limits.limited and not self.books.paused
        if attends:
            # It hears what comes before the head, too.
            self._reclaim(now, others)
        else:
            state = self.world.state(first.channel)
            head = state.head_dequeue_at or 0, state.head_message_id or 0
        room, shared = self.books.room(limit, now), self.shared_room()
        batch = self.world.take_more(first, limit=limit, max_cost=max_cost, max_bytes=max_bytes)
        if attends:
            self.note_ordering(now)
        ids, after = [one.message_id for one in batch], self.world.now()
        least: list[int] = []
        most: list[int] = []
        if message is not None:
            own = [] if max_cost is None else [max_cost - message.cost]
            bounds = [
                (shared.least(room, now), own + self._costs(shared, now, now)),
                (shared.most(room, after), own + self._costs(shared, now, after)),
            ]
            least, most = (list(self._following(message, head, now, bound, max_bytes)) for bound in bounds)
        assert ids[: len(least)] == least, f"{ids} follow {first.message_id}, in order are {least}"
        assert ids == most[: len(ids)], f"{ids} follow {first.message_id}, in order are at most {most}"
        self._take_over(batch, now)

    def _newest(self, first: Delivery) -> Message | None:
        """The message of a delivery that is its newest one, at its first attempt."""
        message = self.books.messages.get(first.message_id)
        token = first.message_id, first.lease.id, first.deliveries
        if message is None or (message.id, message.lease_id, message.deliveries) != token or message.attempts > 1:
            return None
        return message

    def _costs(self, shared: SharedRoom, now: int, at: int) -> list[int]:
        """What the limits of the queue let the batch cost; of the shared one *at* an instant."""
        most, (_, out) = self.books.limits.most_cost, self.books.out()
        rates = [(self.books.rate, now), (shared.rate, at)]
        rooms = [rate.allows(moment) for rate, moment in rates if rate.metered]
        rooms.append(None if most is None else most - out)
        return [one for one in rooms if one is not None]

    def _take_over(self, batch: Sequence[Delivery], now: int) -> None:
        self.note_drawn([cost_of(one.payload) for one in batch], now)
        for delivery in batch:
            self.deliver(delivery)
        if batch:
            self._count(batch, now)
            # It pays with its next turns.
            self.turns.configured(batch[0].channel)
            self.given = [*self.given, *batch][-30:]
            self.saw("messages of an ordering key followed" if batch[0].ordering_key else "messages followed")
            if self.books.limits.limited:
                self.saw("messages followed in a queue with a limit")

    def _following(
        self, message: Message, head: Head, now: int, bound: tuple[int, Sequence[int]], max_bytes: int
    ) -> Iterator[int]:
        """The ids of the messages that may be given, in their order."""
        others, name = self.others(), message.channel
        channel = self.books.channels[name]
        if self.books.paused or channel.paused or name in others.states or others.gate:
            return
        if self.books.limits.limited and others.queue_state:
            return
        rooms, costs = [bound[0]], [*bound[1]]
        if channel.policy.max_concurrency is not None:
            rooms.append(channel.policy.max_concurrency - self.books.out_of(name)[0])
        if channel.policy.max_cost_out is not None:
            costs.append(channel.policy.max_cost_out - self.books.out_of(name)[1])
        if (rate := channel.cell.allows(now)) is not None:
            # What follows fits as a whole into a rate in cost.
            (costs if channel.cell.metered else rooms).append(rate)
        cost, size = 0, 0
        for one in self._in_order(message, head, now)[: max(0, min(rooms))]:
            cost, size = cost + one.cost, size + size_of(one.number, one.headers)
            is_alike = one.attempts == 0 and kind_of(one.number) == kind_of(message.number)
            if not is_alike or one.id in others.messages or size > max_bytes or cost > min(costs, default=cost):
                return
            yield one.id

    def _in_order(self, message: Message, head: Head, now: int) -> list[Message]:
        """What comes after a message, up to the first that does not come yet."""
        free = self.books.of_channel(message.channel)
        if message.ordering_key is not None:
            alike = [one for one in free if one.ordering_key == message.ordering_key]
            alike.sort(key=lambda one: (one.deliveries == 0, one.id))
            return list(takewhile(lambda one: one.is_held_back or one.dequeue_at <= now, alike))
        return list(
            takewhile(
                lambda one: one.ordering_key is None and one.dequeue_at <= now,
                (one for one in free if head is None or one.order >= head),
            )
        )
