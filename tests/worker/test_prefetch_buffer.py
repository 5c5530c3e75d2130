"""Order in which a worker's messages begin, against turns counted by hand and by a plain reading of the rule."""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from sqlalchemy_fairqueue.worker.leases import Buffer, HeldDelivery


@dataclass(frozen=True)
class _Delivery:
    channel: str


@dataclass(frozen=True)
class _Held:
    """As much of a held delivery as a buffer needs."""

    number: int
    queue: str
    delivery: _Delivery
    taken_at: float = 0.0


def _held(channels: str, queue: str = "q", first: int = 0) -> list[HeldDelivery]:
    held = [_Held(first + number, queue, _Delivery(channel)) for number, channel in enumerate(channels)]
    return cast("list[HeldDelivery]", held)


def test_newcomers_without_end_do_not_keep_others_waiting() -> None:
    """With each message that begins another channel comes that was never seen: who waits begins as well, and the
    buffer does not remember them all.
    """
    buffer = Buffer()
    buffer.extend(_held("www"))
    begun = []
    for number in range(5000):
        buffer.extend([cast("HeldDelivery", _Held(10 + number, "q", _Delivery(f"new {number}")))])
        begun.append(cast("_Held", buffer.pop()).delivery.channel)
    assert begun[:20].count("w") == 3
    assert len(buffer._last) < 2000


def test_channels_of_two_queues_are_two() -> None:
    """The same name in another queue is another tenant."""
    buffer = Buffer()
    buffer.extend(_held("aa"))
    buffer.extend(_held("a", queue="r", first=9))
    popped = [cast("_Held", buffer.pop()).number for _ in range(3)]
    assert popped == [0, 9, 1]


def test_nothing_is_there() -> None:
    """An empty buffer gives nothing, and remembers nobody."""
    buffer = Buffer()
    assert (len(buffer), buffer.pop(), buffer.next_taken_at()) == (0, None, math.inf)
    for channels in "aaa", "ab":
        buffer.extend(_held(channels))
        popped = [cast("_Held", buffer.pop()) for _ in channels]
        assert "".join(one.delivery.channel for one in popped) == channels


# Who comes later waits behind one of those who wait; who waits already, for one of each newcomer's.
@example(["wwwwww", 2, "m"])
@example(["aabb", 1, "ccc"])
@given(st.lists(st.one_of(st.text("abc", min_size=1, max_size=6), st.integers(1, 4)), max_size=12))
def test_each_waits_for_one_turn_of_the_others(steps: list[str | int]) -> None:
    """Nothing is lost or comes twice, a channel keeps its order, and while a channel has a message that waits, no other
    one gets more than one turn more than it, and the one that it may be in.
    """
    buffer = Buffer()
    given_: list[int] = []
    taken: list[int] = []
    waiting: dict[str, list[int]] = defaultdict(list)
    since: dict[tuple[str, str], int] = {}

    def pop() -> None:
        one = cast("_Held | None", buffer.pop())
        assert (one is None) == (not any(waiting.values()))
        if one is None:
            return
        mine = one.delivery.channel
        assert waiting[mine].pop(0) == one.number
        taken.append(one.number)
        for other, left in waiting.items():
            if left and other != mine:
                since[other, mine] = since.get((other, mine), 0) + 1
                assert since[other, mine] <= 2
            since.pop((mine, other), None)

    for step in steps:
        if isinstance(step, int):
            for _ in range(step):
                pop()
        else:
            deliveries = _held(step, first=len(given_))
            buffer.extend(deliveries)
            for one in cast("list[_Held]", deliveries):
                given_.append(one.number)
                waiting[one.delivery.channel].append(one.number)
    while len(buffer):
        pop()
    assert sorted(taken) == given_
