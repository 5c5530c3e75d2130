"""Allowances of channels: what a dequeue may return, and the check of a batch against it."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlalchemy_fairqueue.reports import Deliveries
from tests.model.books import POLL_AGAIN, Books, Message
from tests.model.turns import cost_of
from tests.model.work import Effects

_STILL = 1_000_000


@dataclass(frozen=True, slots=True)
class Offer:
    """What a channel may give in one call.

    Attributes:
        ready: Its messages that are due and in nobody's way, in the order in which they must come.
        fresh: Those of them that the call itself has let go: it may give them, or pass them by.
        waiting: Its messages that were due, and that others of their ordering keys come before.
        most: How many of them its limits allow now.
        due: Whether it must be looked at: it was not put off a moment ago because all of its messages were locked.
        locked: Its messages that are due and that somebody has locked.
        fits: How many of such messages its limits allow now.
        metered: Whether its limits are in cost: they then count what a call looks at and cannot take.
    """

    ready: list[Message]
    most: int
    due: bool
    locked: list[Message]
    fresh: list[Message]
    waiting: list[Message]
    fits: Callable[[list[Message]], int] = field(compare=False)
    metered: bool

    def given(self, ids: list[int]) -> "Offer":
        """The same, but for what a call has let go and not given."""
        ready = [one for one in self.ready if one.id in ids or one not in self.fresh]
        return replace(self, ready=ready, most=self.fits(ready))

    @property
    def unsure(self) -> bool:
        """Whether a call may have counted costs of messages that it could not take."""
        return self.metered and bool(self.locked or self.fresh or self.waiting)


def offers(books: Books, others: Effects, now: int) -> dict[str, Offer]:
    """The allowance of each channel that a dequeue can see: committed, not paused, its state row locked by nobody."""
    found: dict[str, Offer] = {}
    for name, channel in books.channels.items():
        if name in others.states or channel.paused:
            continue
        # What a call lets go is due when it does, which may be later than when the call began.
        due = [
            one
            for one in books.of_channel(name)
            if one.dequeue_at <= now or (one.moved_at >= now and not one.is_held_back)
        ]
        first = [one for one in due if books.goes_first(one)]
        ready = [one for one in first if one.id not in others.messages]
        fits = partial(allowed, books, name, now)
        found[name] = Offer(
            *(ready, fits(ready), now >= channel.put_off_until),
            locked=[one for one in due if one.id in others.messages],
            fresh=[one for one in ready if one.moved_at >= now],
            waiting=[
                one
                for one in books.of_channel(name)
                if not books.goes_first(one) and (one.dequeue_at <= now or (one.is_held_back and one.moved_at >= now))
            ],
            fits=fits,
            metered=channel.metered,
        )
    return found


def allowed(books: Books, name: str, now: int, ready: Sequence[Message]) -> int:
    """How many of these messages the limits of a channel allow now, in this order."""
    channel = books.channels[name]
    limits = [len(ready), channel.cell.fits([one.cost for one in ready], now)]
    if channel.policy.max_concurrency is not None:
        limits.append(max(0, channel.policy.max_concurrency - books.out_of(name)[0]))
    if channel.policy.max_cost_out is not None:
        out, costs = books.out_of(name)[1], 0
        for count, message in enumerate(ready[: min(limits)]):
            costs += message.cost
            # I37: one that costs more goes alone.
            if out + costs > channel.policy.max_cost_out and out + costs > message.cost:
                return count
    return min(limits)


def check_quota(books: Books, batch: Deliveries, offered: dict[str, Offer]) -> bool:
    """Fail if the queue's quota does not allow the batch (I37); whether the quota may have ended it."""
    most, (_, out) = books.limits.most_cost, books.out()
    if most is None:
        return False
    for delivery in batch:
        cost = cost_of(delivery.payload)
        assert out == 0 or out + cost <= most, f"a cost of {out} is out, one of {cost} goes, the quota is {most}"
        out += cost
    ids = {one.message_id for one in batch}
    # As for bytes: whether somebody has a message locked is found only where the quota would let it go.
    met = [one for offer in offered.values() for one in (*offer.ready, *offer.locked, *offer.fresh, *offer.waiting)]
    return any(out + one.cost > most for one in met if one.id not in ids)


def size_of(number: int, headers: Mapping[str, object] | None) -> int:
    """The bytes of a message: its content, and its headers as text."""
    return len(str(number)) + (len(json.dumps(headers)) if headers else 0)


def check_batch(batch: Deliveries, least: int, limit: int, offered: dict[str, Offer], max_bytes: int) -> bool:
    """Fail unless the batch is one that the offers allow: at most *limit*, and *least* if so many are ready.

    Returns:
        Whether the batch ended because of its bytes.
    """
    given: dict[str, list[int]] = defaultdict(list)
    for delivery in batch:
        given[delivery.channel].append(delivery.message_id)
    assert len(batch) <= limit, f"{len(batch)} messages, the limit was {limit}"
    for name, ids in given.items():
        assert name in offered, f"channel {name} was served although it is paused or its state is locked"
        offer = offered[name].given(ids)
        expected = [one.id for one in offer.ready]
        assert ids == expected[: len(ids)], f"channel {name} gave {ids}, in order were {expected}"
        assert len(ids) <= offer.most, f"channel {name} gave {len(ids)}, its limits allow {offer.most}"
    taken = sum(size_of(delivery.payload, delivery.headers) for delivery in batch)
    assert taken <= max_bytes or len(batch) == 1, f"{taken} bytes, at most {max_bytes} were asked for"
    # The next message in turn is the first one that some channel has not given.
    left = [
        offer.ready[len(given[name])]
        for name, offer in ((name, offer.given(given[name])) for name, offer in offered.items())
        if len(given[name]) < offer.most
    ]
    # Whether somebody has a message locked is found only where it would have room; so is what must wait for others.
    left += [one for offer in offered.values() for one in (*offer.locked, *offer.fresh, *offer.waiting)]
    was_cut = 0 < len(batch) < limit and any(taken + size_of(one.number, one.headers) > max_bytes for one in left)
    if len(batch) < least and not was_cut:
        for name, offer in offered.items():
            count = len(given[name])
            assert count >= offer.given(given[name]).most or not offer.due or offer.unsure, (
                f"channel {name} gave {count} of {offer.most} that were ready, with {len(batch)} of {least} taken"
            )
    return was_cut


def put_off(books: Books, offered: dict[str, Offer], now: int) -> None:
    """Note which channels were found with locked messages: they may be left alone for a moment."""
    for name, offer in offered.items():
        if offer.locked or offer.unsure:
            books.channels[name].put_off_until = now + POLL_AGAIN


def unhindered(books: Books, offered: dict[str, Offer]) -> dict[str, int]:
    """How many messages are ready in each channel that nothing but its turn holds back."""
    return {
        name: len(offer.ready)
        for name, offer in offered.items()
        if offer.due and not offer.locked and not offer.waiting and not offer.fresh and books.channels[name].unlimited
    }


def check_due_in(batch: Deliveries, limit: int, books: Books, others: Effects, now: int, *, has_room: bool) -> None:
    """Fail if an idle consumer would wait past something that it could have known of."""
    if len(batch) == limit:
        return
    if books.paused:
        # What the call has let go is heard of by the next one.
        has_more = any(one.moved_at >= now and not one.is_held_back for one in books.messages.values())
        assert batch.due_in is None or has_more, "a paused queue says when something is due"
        return
    waits: list[int] = []
    for name, channel in books.channels.items():
        if channel.paused or not has_room:
            continue
        unlocked = [one for one in books.of_channel(name) if one.id not in others.messages and books.goes_first(one)]
        if name not in others.states and unlocked and channel.unlimited:
            waits.append(max(unlocked[0].dequeue_at - now, channel.put_off_until - now, 0))
    leases = [books.leases[one.lease_id].expires_at for one in books.messages.values() if one.lease_id is not None]
    # What has expired and is still there is in somebody's hands.
    waits += [expires_at - now if expires_at > now else _STILL for expires_at in leases]
    if others.states:
        # Nobody gets ahead of who may have one of these, until it has stood still for a second.
        waits = [max(wait, _STILL) for wait in waits]
    if waits:
        assert batch.due_in is not None, "nothing is said to be scheduled, but messages are there"
        due_in = round(batch.due_in.total_seconds() * 1_000_000)
        assert due_in <= max(0, min(waits)), (
            f"the next poll is in {due_in} us, something is due in {max(0, min(waits))} us"
        )
