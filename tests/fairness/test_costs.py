"""Channels get equal sums of costs by weight, message by message, however late the costs are known."""

from collections import Counter
from datetime import timedelta
from fractions import Fraction

import pytest

from tests.fixtures.clock import Clock
from tests.sql.client import HOUR, Kernel, OpenKernel

SCALE = 2_520
"""Units of a tag that a cost of 1 takes at weight 1."""
FIRST = -9 * 10**18
"""Where virtual time begins."""


@pytest.fixture(autouse=True)
def _fair_by_cost(kernel: Kernel) -> None:
    for queue in ("q", "r"):
        kernel.rows('select fq_set_queue(%(name)s, \'{"fair_by": "cost"}\')', name=queue)


@pytest.mark.parametrize("limit", [1, 7, 100])
@pytest.mark.parametrize("consumers", [1, 4])
def test_served_costs_differ_by_one_message_at_most(
    kernel: Kernel, open_kernel: OpenKernel, limit: int, consumers: int
) -> None:
    """In every prefix, the costs by weight that two backlogged channels were served differ by no more than the largest
    message of either.
    """
    costs = {"pages": (1, 1), "books": (1, 100), "heavy": (3, 7), "mixed": (2, 0)}
    for name, (weight, cost) in costs.items():
        kernel.configure(name, weight=weight)
        kernel.enqueue(*[name] * 400, costs=[cost or 1 + number * 37 % 50 for number in range(400)])
    cost_of = {row["id"]: row["cost"] for row in kernel.rows("select id, cost from fq_message")}
    largest = {name: Fraction(cost or 50, weight) for name, (weight, cost) in costs.items()}
    kernels = [open_kernel(autocommit=True, name=f"consumer {number}") for number in range(consumers)]
    served = dict.fromkeys(costs, Fraction())
    taken: Counter[str] = Counter()
    turn = 0
    while max(taken.values(), default=0) + limit <= 400 and turn < 150:
        call = kernels[turn % consumers].dequeue(limit)
        turn += 1
        for hand in call.hands:
            taken[hand.channel] += 1
            served[hand.channel] += Fraction(cost_of[hand.id], costs[hand.channel][0])
            for one in costs:
                for other in costs:
                    most = max(largest[one], largest[other]) + Fraction(1, SCALE)
                    assert served[one] - served[other] <= most, (turn, one, other)
    assert sum(taken.values()) > 40


@pytest.mark.parametrize("limit", [1, 100])
def test_who_was_served_alone_owes_nothing(kernel: Kernel, limit: int) -> None:
    """A channel that was served a million times alone and one that is new share from now on, both ways round."""
    kernel.enqueue("old")
    kernel.drain()
    kernel.rows("update fq_channel_state set tag = tag + 2520000000")
    for first, second in (("new", "old"), ("old", "newer")):
        kernel.enqueue(*[first] * 200)
        kernel.dequeue(1)
        kernel.enqueue(*[second] * 200)
        kernel.dequeue(1)
        served = Counter(name for _ in range(100 // limit) for name in kernel.dequeue(limit).channels)
        assert abs(served[first] - served[second]) <= 2
        kernel.drain()


@pytest.mark.parametrize("actual", [1_000, 1], ids=["far more", "far less"])
def test_what_was_not_known_is_paid_back(kernel: Kernel, actual: int) -> None:
    """A channel whose costs are off by a thousand times has its part in the end; meanwhile both are served."""
    declared = 1_001 - actual
    kernel.enqueue(*["wrong"] * 300, costs=[declared] * 300)
    kernel.enqueue(*["right"] * 300, costs=[500] * 300)
    kernel.hear()
    served: Counter[str] = Counter()
    for _ in range(200):
        (hand,) = kernel.dequeue().hands
        cost = actual if hand.channel == "wrong" else 500
        served[hand.channel] += cost
        kernel.correct(hand, cost)
        assert kernel.complete(hand) == {}
        if not kernel.value(
            "select count(*) from fq_message m join fq_channel c on c.id = m.channel_id where c.name = %(name)s",
            name=hand.channel,
        ):
            break
        assert abs(served["wrong"] - served["right"]) <= 2_000
    assert served["right"] > 0
    assert served["wrong"] > 0


def test_a_refund_beyond_the_virtual_time_is_a_credit(kernel: Kernel) -> None:
    """Who was charged too much comes first until it has what it missed, and the newcomer has no part in that."""
    kernel.enqueue(*["dear"] * 100, costs=[1_000] * 100)
    kernel.enqueue(*["fair"] * 300)
    (hand,) = kernel.dequeue().hands
    assert kernel.dequeue(100).channels == ["fair"] * 100
    kernel.correct(hand, 1)
    kernel.complete(hand)
    kernel.ready()
    state = kernel.state("dear")
    assert state["tag"] == state["ready_tag"] == FIRST + 100 * SCALE + 2
    assert state["tag_rest"] == -99 * SCALE - 1
    kernel.enqueue(*["new"] * 50)
    kernel.ready()
    assert kernel.state("new")["tag"] >= FIRST + 100 * SCALE


@pytest.mark.parametrize("limit", [1, 7])
def test_a_correction_costs_no_call(kernel: Kernel, limit: int) -> None:
    """The call that hears of it serves the channel at its new place, if no other is ready."""
    kernel.enqueue(*["a"] * 3)
    (hand,) = kernel.dequeue().hands
    kernel.correct(hand, 1_000)
    kernel.complete(hand)
    assert kernel.dequeue(limit).channels == ["a"] * min(limit, 2)


@pytest.mark.parametrize("limit", [7, 33])
def test_a_batch_is_what_many_calls_would_take(kernel: Kernel, limit: int) -> None:
    """One call for many messages gives each channel what as many calls for one would, but for equal start times."""
    for queue in ("q", "r"):
        kernel.queue = queue
        for name, weight, cost in (("a", 1, 3), ("b", 2, 7), ("c", 5, 1), ("d", 1, 100)):
            kernel.configure(name, weight=weight)
            kernel.enqueue(*[name] * 100, costs=[cost] * 100)
    served: dict[str, Counter[str]] = {"q": Counter(), "r": Counter()}
    for _ in range(3):
        kernel.queue = "q"
        served["q"].update(kernel.dequeue(limit).channels)
        kernel.queue = "r"
        for _ in range(limit):
            served["r"].update(kernel.dequeue().channels)
        assert all(abs(served["q"][name] - served["r"][name]) <= 1 for name in "abcd")


@pytest.mark.parametrize("limit", [1, 100])
def test_a_channel_at_its_limit_saves_nothing_up(kernel: Kernel, limit: int) -> None:
    """While it is at its max_concurrency it stands in no order, and comes back where the others are."""
    kernel.configure("held", 1)
    kernel.enqueue(*["held"] * 300, *["a"] * 500, *["b"] * 500)
    (hand,) = [one for one in kernel.dequeue(3).hands if one.channel == "held"]
    for _ in range(100):
        assert kernel.dequeue().channels != ["held"]
    kernel.complete(hand)
    kernel.configure("held", 1000)
    served = Counter(name for _ in range(90 // min(limit, 90)) for name in kernel.dequeue(min(limit, 90)).channels)
    assert max(served.values()) - min(served.values()) <= 1


def test_a_rate_saves_nothing_up(kernel: Kernel, clock: Clock) -> None:
    """What a rate held back comes back where the others are, once the rate allows it."""
    kernel.configure("slow", interval=HOUR, burst=1)
    kernel.enqueue(*["slow"] * 5, *["a"] * 100, costs=[1] * 5 + [10] * 100)
    assert sorted(kernel.dequeue(2).channels) == ["a", "slow"]
    assert set(kernel.dequeue(50).channels) == {"a"}
    clock.advance(timedelta(hours=1))
    assert kernel.dequeue(4).channels.count("slow") == 1
    assert kernel.state("slow")["tag"] >= FIRST + 500 * SCALE


def test_a_scheduled_message_joins_at_the_virtual_time(kernel: Kernel, clock: Clock) -> None:
    """A channel whose first message becomes due joins the others where they are, and is found by hints."""
    kernel.enqueue(*["later"] * 50, delays=[60_000_000] * 50)
    kernel.enqueue(*["now"] * 200)
    call = kernel.dequeue(100)
    assert call.channels == ["now"] * 100
    clock.advance(timedelta(minutes=1))
    assert Counter(kernel.dequeue(40).channels) == {"now": 20, "later": 20}


@pytest.mark.parametrize("limit", [1, 7])
def test_a_queue_turns_from_messages_to_costs_and_back(kernel: Kernel, limit: int) -> None:
    """Nothing is lost and nobody is passed over, whatever the hints, when a queue that is being served is turned."""
    kernel.enqueue(*"abcd" * 60, costs=[1, 2, 3, 6] * 60)
    taken: list[int] = []
    for number in range(36):
        kernel.set_queue(fair_by=("messages", "cost", "seconds")[number % 3])
        for _ in range(2):
            call = kernel.dequeue(limit)
            assert len(call.hands) == min(limit, 240 - len(taken))
            taken += call.ids
    taken += [hand.id for hand in kernel.drain()]
    assert len(taken) == len(set(taken)) == 240


def test_virtual_time_begins_anew_before_it_leaves_its_range(kernel: Kernel) -> None:
    """The distances of the channels stay."""
    kernel.enqueue(*["a"] * 50, *["b"] * 50, costs=[3] * 50 + [1] * 50)
    kernel.dequeue(8)
    kernel.rows(
        "update fq_channel_state set row_version = row_version + 1, tag = tag + 8500000000000000000,"
        " ready_tag = ready_tag + 8500000000000000000"
    )
    before = kernel.state("a")["tag"] - kernel.state("b")["tag"]
    served = Counter(name for _ in range(40) for name in kernel.dequeue().channels)
    assert kernel.state("a")["tag"] < FIRST + 10**18
    assert abs(kernel.state("a")["tag"] - kernel.state("b")["tag"] - before) <= 3 * SCALE
    assert served == {"a": 10, "b": 30}


def test_virtual_time_begins_anew_beside_a_channel_that_was_idle_for_long(kernel: Kernel) -> None:
    """A tag near the beginning of the range cannot move back by as much as the others; the queue goes on."""
    kernel.enqueue("idle")
    kernel.complete(*kernel.dequeue(1).hands)
    kernel.enqueue("busy", "busy")
    kernel.rows(
        "update fq_channel_state s set tag = %(late)s, ready_tag = %(late)s from fq_channel c "
        "where c.id = s.channel_id and c.name = 'busy'",
        late=-(10**18) + 1,
    )
    assert [hand.channel for hand in kernel.dequeue(1).hands] == ["busy"]
    kernel.enqueue("idle")
    assert sorted(hand.channel for hand in kernel.dequeue(2).hands) == ["busy", "idle"]
    assert all(FIRST <= row["tag"] < -(10**18) for row in kernel.rows("select tag from fq_channel_state"))


@pytest.mark.parametrize("most", [1, 30, 100, 1000])
def test_a_batch_that_bytes_cut_is_the_beginning_of_the_order(kernel: Kernel, most: int) -> None:
    """However few bytes a call may take, the costs that two channels were served stay within one message."""
    kernel.enqueue(*["a"] * 60, *["b"] * 400, costs=[3] * 60 + [1] * 400)
    served: Counter[str] = Counter()
    for _ in range(20):
        rows = kernel.rows(
            "select channel from fq_dequeue('q', 10, 60000000, 'me', p_max_bytes => %(most)s)"
            " where message_id is not null",
            most=most,
        )
        for name in (row["channel"] for row in rows):
            served[name] += 3 if name == "a" else 1
            assert abs(served["a"] - served["b"]) <= 3
    assert served["a"] >= 9 + 18 * (most > 1)


def test_a_dead_letter_keeps_its_cost(kernel: Kernel) -> None:
    """A redriven message costs what it cost before it died."""
    kernel.enqueue("a", costs=[77])
    (hand,) = kernel.dequeue().hands
    kernel.bury(hand)
    assert kernel.value("select cost from fq_dead_letter") == 77
    kernel.rows("select * from fq_redrive('q')")
    assert kernel.value("select cost from fq_message") == 77


def test_a_rate_that_is_set_changes_no_turn(kernel: Kernel) -> None:
    """A ready channel that gets a rate stands where it stood, as long as the rate allows."""
    kernel.enqueue(*["a", "b"] * 60)
    assert sorted(kernel.dequeue(2).channels) == ["a", "b"]
    kernel.configure("a", interval=1_000_000, burst=1000)
    assert Counter(kernel.dequeue(40).channels) == {"a": 20, "b": 20}
