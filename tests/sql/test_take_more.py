"""fq_take_more: what follows a message in its channel joins it, in order and within all limits."""

from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest

from tests.fixtures.clock import Clock
from tests.sql.answers import Hand
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, policy_json

pytestmark = pytest.mark.usefixtures("balanced")


def _more(kernel: Kernel, first: Hand, limit: int = 10, *, cost: int = 1000, size: int | None = None) -> list[int]:
    rows = kernel.rows(
        "select message_id from fq_take_more(%(queue)s, %(id)s, %(lease_id)s, %(deliveries)s, %(limit)s, %(cost)s,"
        " %(size)s::bigint)",
        **asdict(first),
        limit=limit,
        cost=cost,
        size=size,
    )
    return [row["message_id"] for row in rows]


def test_it_takes_those_that_follow(kernel: Kernel) -> None:
    """They are the channel's next ones, as many as are asked for, under the lease; they are settled as others are."""
    kernel.enqueue("a", "b", *["a"] * 4)
    first = next(hand for hand in kernel.dequeue(2).hands if hand.channel == "a")

    assert _more(kernel, first, 2) == [3, 4]
    rows = kernel.rows("select id, lease_id, attempts, deliveries from fq_message where id in (3, 4)")
    assert [(row["lease_id"], row["attempts"], row["deliveries"]) for row in rows] == [(first.lease_id, 1, 1)] * 2
    assert _more(kernel, first) == [5, 6]
    assert _more(kernel, first) == []
    assert kernel.complete(replace(first, id=3, row=None)) == {}
    assert kernel.dequeue(9).hands == []


ENDS = pytest.mark.parametrize(
    "other",
    [
        pytest.param({"kinds": ["work", "work", "else", "work"]}, id="another kind"),
        pytest.param({"costs": [4, 4, 1, 1]}, id="the cost"),
        pytest.param({"contents": [b"1", b"22", b"3" * 20, b"4"]}, id="the bytes"),
        pytest.param({"delays": [None, None, HOUR, HOUR]}, id="one that is not due"),
    ],
)


@ENDS
def test_it_ends_where_one_does_not_fit(kernel: Kernel, other: dict[str, Any]) -> None:
    """What follows one that does not fit is left for its own turn, in order."""
    kernel.enqueue("a", "a", "a", "a", **other)
    [first] = kernel.dequeue().hands

    assert _more(kernel, first, cost=8, size=10) == [2]
    later = kernel.value("select count(*) from fq_message where lease_id is null and dequeue_at <= fq_now()")
    assert kernel.dequeue(9).ids == [3, 4][:later]


def test_it_takes_what_follows_in_an_ordering_key(kernel: Kernel) -> None:
    """A message with an ordering key is joined by the next ones of the key, wherever they wait, and by no others."""
    kernel.enqueue(*["a"] * 7, ordering_keys=["k", "l", "k", "k", None, "k", "k"])
    assert kernel.dequeue(3).ids == [1, 2, 5]
    first = kernel.out()[1]

    assert _more(kernel, first, 2) == [3, 4]
    assert _more(kernel, first) == [6, 7]
    assert kernel.dequeue(9).ids == []
    kernel.enqueue("a", ordering_keys=["k"])
    assert kernel.dequeue(9).ids == []
    hands = kernel.out()
    kernel.complete(hands[1], hands[3])
    assert kernel.dequeue(9).ids == []
    kernel.retry(hands[4])
    kernel.complete(hands[6], hands[7])
    kernel.ready()
    [again] = kernel.dequeue(9).hands
    assert (again.id, again.attempt, _more(kernel, again)) == (4, 2, [])
    kernel.complete(again)
    kernel.ready()
    assert kernel.dequeue(9).ids == [8]


@ENDS
def test_an_ordering_key_ends_where_one_does_not_fit(kernel: Kernel, other: dict[str, Any]) -> None:
    """What follows in the key is left for later, and keeps the order."""
    kernel.enqueue("a", "a", "a", "a", ordering_keys=["k"] * 4, **other)
    [first] = kernel.dequeue().hands

    assert _more(kernel, first, cost=8, size=10) == [2]
    kernel.complete(*kernel.out().values())
    kernel.ready()
    assert kernel.dequeue(9).ids == ([] if "delays" in other else [3])


def test_those_that_joined_may_go_back_after_the_first(kernel: Kernel) -> None:
    """The first of a key is held back behind those that joined it, and goes first when they are back.

    A frozen row no longer tells that somebody had it locked, which lets its key be looked at again.
    """
    kernel.enqueue(*["a"] * 2, ordering_keys=["k"] * 2)
    [first] = kernel.dequeue().hands
    assert _more(kernel, first) == [2]
    hands = kernel.out()

    kernel.release(hands[1])
    assert kernel.dequeue(9).ids == []
    kernel.rows("vacuum (freeze) fq_message")
    assert kernel.dequeue(9).ids == []
    kernel.retry(hands[2], delay=HOUR)
    assert kernel.dequeue(9).ids + kernel.dequeue(9).ids == [1]


def test_one_that_was_tried_before_comes_alone(kernel: Kernel) -> None:
    """A message that has failed, or whose consumer died, joins no others: it may be what kills them."""
    kernel.enqueue("a", "a", "a")
    kernel.retry(kernel.dequeue(2).hands[1], delay=1)
    kernel.enqueue("a")
    kernel.ready()
    [third] = kernel.dequeue().hands
    assert (third.id, _more(kernel, third)) == (3, [])
    [second] = kernel.dequeue().hands
    assert (second.id, second.attempt, _more(kernel, second)) == (2, 2, [])
    kernel.release(third)
    kernel.ready()
    [third] = kernel.dequeue().hands
    assert (third.id, third.attempt, third.deliveries, _more(kernel, third)) == (3, 1, 2, [4])


@pytest.mark.parametrize("limit", ["the channel's", "the channel's rate", "the queue's", "a shared one"])
def test_limits_count_each(kernel: Kernel, limit: str) -> None:
    """No more are out together than a limit allows, and what they free is free for others."""
    kernel.enqueue(*["a"] * 6)
    if limit == "a shared one":
        kernel.rows("select fq_configure_limit('mail', %(it)s)", it=policy_json(max_concurrency=3))
        kernel.rows("select fq_limit_queue('q', %(it)s)", it=policy_json(limits=["mail"]))
    elif limit == "the queue's":
        kernel.rows("select fq_limit_queue('q', %(it)s)", it=policy_json(max_concurrency=3))
    else:
        it = {"max_concurrency": 3} if limit == "the channel's" else {"rate_interval": HOUR, "rate_burst": 3}
        kernel.rows("select fq_configure_channel('q', 'a', %(it)s)", it=policy_json(**it))
    kernel.ready()
    [first] = kernel.dequeue().hands

    assert _more(kernel, first) == [2, 3]
    assert _more(kernel, first) == []
    assert kernel.dequeue(9).hands == []
    if "rate" not in limit:
        kernel.complete(first)
        assert kernel.dequeue(9).ids == [4]


def test_nothing_follows_what_is_not_held(kernel: Kernel) -> None:
    """An old token, a lease that has ended, another queue: nothing is taken."""
    kernel.enqueue("a", "a", "a")
    [first] = kernel.dequeue().hands
    for wrong in replace(first, deliveries=2), replace(first, lease_id=first.lease_id + 1), replace(first, id=2):
        assert _more(kernel, wrong) == []
    assert _more(replace(kernel, queue="other"), first) == []
    kernel.rows("update fq_lease set expires_at = fq_now() - 1")
    assert _more(kernel, first) == []
    assert len(kernel.out()) == 1


def test_a_paused_channel_gives_no_more(kernel: Kernel) -> None:
    """A pause holds, as for a dequeue that begins after it was heard."""
    kernel.enqueue("a", "a")
    [first] = kernel.dequeue().hands
    kernel.rows("select fq_pause('q', 'a')")
    kernel.hear()
    assert _more(kernel, first) == []


def test_what_others_have_locked_is_not_waited_for(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A message that somebody has locked ends what follows; a channel that somebody serves gives nothing now."""
    kernel.enqueue("a", "a", "a", "a")
    [first] = kernel.dequeue().hands
    other = open_kernel()
    other.rows("select from fq_message where id = 3 for update")
    assert _more(kernel, first) == [2]
    other.rollback()
    other.rows("select from fq_channel_state for update")
    assert _more(kernel, first) == []
    other.rollback()
    assert _more(kernel, first) == [3, 4]


def test_the_channel_pays_with_its_next_turns(kernel: Kernel) -> None:
    """A channel that has given more than its turn is passed by until the others had as much."""
    kernel.enqueue(*["a"] * 8, *["b"] * 8)
    first = next(hand for hand in kernel.dequeue(2).hands if hand.channel == "a")
    assert len(_more(kernel, first, 3)) == 3
    assert kernel.dequeue(3).channels == ["b"] * 3
    assert sorted(kernel.dequeue(4).channels) == ["a", "a", "b", "b"]


def test_a_channel_whose_time_has_come_is_not_forgotten(kernel: Kernel, clock: Clock) -> None:
    """What is left of a channel that no dequeue has made ready yet is delivered in its turn."""
    kernel.enqueue("a")
    [first] = kernel.dequeue(lease=10 * HOUR).hands
    kernel.enqueue("a", "a", "a", "a", delays=[SECOND] * 4)
    kernel.enqueue(*["b"] * 20)
    assert kernel.dequeue(10).channels == ["b"] * 10
    clock.advance(timedelta(seconds=5))

    assert _more(kernel, first, 2) == [2, 3]
    assert kernel.dequeue(6).channels == ["b", "a", "b", "a", "b", "b"]


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_call_hears_counts_although_it_takes_nothing(kernel: Kernel, *, shared: bool) -> None:
    """A slot that a completion frees is free, also if the first to hear of it looks for what follows, in vain."""
    kernel.rows("select fq_configure_limit('mail', %(it)s)", it=policy_json(max_concurrency=2))
    wanted = policy_json(limits=["mail"]) if shared else policy_json(max_concurrency=2)
    kernel.rows("select fq_limit_queue('q', %(it)s)", it=wanted)
    kernel.enqueue("a", "b", "b", "b")
    hands = {hand.channel: hand for hand in kernel.dequeue(2).hands}
    kernel.complete(hands["b"])

    assert _more(kernel, hands["a"]) == []
    kernel.complete(hands["a"])
    assert kernel.dequeue(5).ids == [3, 4]


def test_a_plan_that_the_call_follows_itself(kernel: Kernel, open_kernel: OpenKernel, clock: Clock) -> None:
    """A channel that gets a higher limit of its plan here is not forgotten."""
    kernel.rows("select fq_limit_queue('q', %(it)s)", it=policy_json(max_concurrency=100))
    kernel.rows("select fq_configure_plan('q', 'p', %(it)s)", it=policy_json(max_concurrency=1))
    kernel.rows("select fq_configure_channel('q', 'a', %(it)s)", it=policy_json(plan="p"))
    kernel.enqueue("a", "a", "a", "a")
    [first] = kernel.dequeue(9, lease=HOUR).hands
    clock.advance(timedelta(seconds=5))
    assert kernel.dequeue(9).ids == []
    kernel.enqueue("z")
    assert kernel.dequeue(9).channels == ["z"]
    kernel.rows("select fq_configure_plan('q', 'p', %(it)s)", it=policy_json(max_concurrency=3))
    # Who spreads the change finds the channel locked.
    other = open_kernel()
    other.rows(
        "select from fq_channel_state where channel_id = (select id from fq_channel where name = 'a') for update"
    )
    assert kernel.dequeue(9).ids == []
    other.rollback()

    assert _more(kernel, first) == []
    assert kernel.dequeue(9).channels == ["a", "a"]


@pytest.mark.parametrize("whose", ["the channel's", "the queue's"])
def test_a_rate_of_cost_where_seconds_count(kernel: Kernel, whose: str) -> None:
    """What a message takes is not known before, so none follows: it would count 1, and be charged its mean."""
    kernel.set_queue(fair_by="seconds")
    rate = policy_json(rate_interval=1000, rate_burst=2500, rate_of="cost")
    if whose == "the queue's":
        kernel.rows("select fq_limit_queue('q', %(it)s)", it=rate)
    else:
        kernel.rows("select fq_configure_channel('q', 'a', %(it)s)", it=rate)
    kernel.enqueue(*["a"] * 9)
    [first] = kernel.dequeue().hands

    assert _more(kernel, first) == []


def test_a_dead_letter_that_holds_the_key(kernel: Kernel) -> None:
    """Nothing of the key follows while a message of it is dead."""
    kernel.set_queue(on_dead="hold")
    kernel.enqueue(*["a"] * 4, ordering_keys=["k"] * 4)
    [first] = kernel.dequeue().hands
    assert _more(kernel, first, 1) == [2]
    kernel.bury(kernel.out()[2])

    assert _more(kernel, first) == []
