"""fq_enqueue: channels with a bound of their backlog."""

import pytest
from psycopg import errors

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on
from tests.sql.kernel.verbs import bound, unbalanced
from tests.sql.life.verbs import enqueue, outcomes, purge_channel


def _waiting(kernel: Kernel) -> int:
    waiting: int = kernel.value("select count(*) from fq_message where lease_id is null")
    return waiting


def test_a_full_channel_takes_no_more(kernel: Kernel) -> None:
    """Beyond max_backlog nothing is added, with consumers away; 'full' names no message, and leaves nothing behind."""
    bound(kernel, "a", 3)
    assert outcomes(enqueue(kernel, *["a"] * 2)) == ["created"] * 2
    results = enqueue(kernel, *["a"] * 3, "b")
    assert outcomes(results) == ["created", "full", "full", "created"]
    assert (results[1].message_id, results[1].created) == (None, False)
    assert outcomes(enqueue(kernel, "a")) == ["full"]
    assert _waiting(kernel) == 4
    assert kernel.value("select sum(dropped) from fq_signal") == 0
    assert unbalanced(kernel) == []


def test_what_is_dropped_is_counted(kernel: Kernel) -> None:
    """A channel that drops counts what it dropped, exactly, once it is heard; nothing of a rollback is counted."""
    bound(kernel, "a", 1, drop=True)
    assert outcomes(enqueue(kernel, *["a"] * 3)) == ["created", "dropped", "dropped"]
    assert outcomes(enqueue(kernel, "a")) == ["dropped"]
    kernel.hear()
    assert outcomes(enqueue(kernel, "a")) == ["dropped"]
    kernel.connection.autocommit = False
    enqueue(kernel, "a")
    kernel.rollback()
    kernel.hear()
    assert kernel.state("a")["dropped"] == 4
    assert (kernel.state("a")["backlog"], _waiting(kernel)) == (1, 1)


@pytest.mark.parametrize("heard", [True, False])
def test_a_message_that_leaves_makes_room(kernel: Kernel, *, heard: bool) -> None:
    """A delivery, a cancel and a purge make room at once; what is given back takes it again."""
    bound(kernel, "a", 2)
    one, two = enqueue(kernel, "a", "a")
    if heard:
        kernel.hear()
    assert kernel.cancel(one.message_id or 0) == {}
    assert outcomes(enqueue(kernel, "a", "a")) == ["created", "full"]
    (hand,) = kernel.dequeue().hands
    assert hand.id == two.message_id
    assert outcomes(enqueue(kernel, "a", "a")) == ["created", "full"]
    kernel.release(hand)
    assert purge_channel(kernel, "a") == 3
    assert outcomes(enqueue(kernel, "a", "a", "a")) == ["created", "created", "full"]
    assert unbalanced(kernel) == []


def test_what_is_given_back_counts(kernel: Kernel) -> None:
    """Messages that consumers have do not count; those that they give back do, heard of or not."""
    bound(kernel, "a", 2)
    enqueue(kernel, "a", "a")
    one, two = kernel.dequeue(2).hands
    kernel.release(one)
    kernel.retry(two)
    assert outcomes(enqueue(kernel, "a")) == ["full"]
    kernel.hear()
    assert outcomes(enqueue(kernel, "a")) == ["full"]
    assert unbalanced(kernel) == []


def test_keys_take_no_room_twice(kernel: Kernel) -> None:
    """In a full channel a duplicate is a duplicate and a replacement replaces; only what would be added is full."""
    bound(kernel, "a", 1)
    enqueue(kernel, "a", keys=["k"])
    results = enqueue(kernel, *["a"] * 3, keys=["k", "k", "l"], on=["skip", "replace", "skip"])
    assert outcomes(results) == ["duplicate", "replaced", "full"]
    assert unbalanced(kernel) == []


def test_a_full_channel_leaves_the_key_of_a_leased_message(kernel: Kernel) -> None:
    """Where there is no room for the message that would replace one in a consumer's hands, the key stays."""
    bound(kernel, "a", 1)
    (held,) = enqueue(kernel, "a", keys=["k"])
    kernel.dequeue()
    enqueue(kernel, "a")
    assert outcomes(enqueue(kernel, "a", keys=["k"], on="replace")) == ["full"]
    assert kernel.value("select id from fq_message where dedupe_key = 'k'") == held.message_id


def test_what_replaces_a_leased_message_takes_room_after_the_others(kernel: Kernel) -> None:
    """A message that is added in place of a leased one has the room that the rest of its call left."""
    bound(kernel, "a", 1)
    enqueue(kernel, "a", keys=["k"])
    kernel.dequeue()
    assert outcomes(enqueue(kernel, "a", "a", keys=[None, "k"], on=["skip", "replace"])) == ["created", "full"]
    assert unbalanced(kernel) == []


def test_room_is_counted_within_a_call_and_a_transaction(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """What the same call or transaction added before counts, keyed or not."""
    bound(kernel, "a", 3)
    business = open_kernel()
    assert outcomes(enqueue(business, "a", "a", keys=["k", None])) == ["created", "created"]
    assert outcomes(enqueue(business, "a", "a", keys=[None, "l"])) == ["created", "full"]
    business.commit()
    assert _waiting(kernel) == 3


def test_producers_at_the_edge_do_not_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Two producers of the last message that fits both add it, for neither sees the other's open transaction. Each is
    counted once, and the next one finds the channel full.
    """
    bound(kernel, "a", 2)
    enqueue(kernel, "a")
    first = open_kernel()
    assert outcomes(enqueue(first, "a")) == ["created"]
    assert outcomes(waits.unhindered(on(lambda second: enqueue(second, "a")))) == ["created"]
    first.commit()
    assert outcomes(enqueue(kernel, "a")) == ["full"]
    assert unbalanced(kernel) == []
    kernel.hear()
    assert kernel.state("a")["backlog"] == 3


def test_a_hearing_in_flight_counts_nothing_twice(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """While a signal is being heard it counts once: before the commit as a signal, after it in the backlog."""
    bound(kernel, "a", 3)
    enqueue(kernel, "a")
    dispatcher = open_kernel()
    dispatcher.hear()
    assert outcomes(enqueue(kernel, "a")) == ["created"]
    dispatcher.commit()
    assert outcomes(enqueue(kernel, "a", "a")) == ["created", "full"]


def test_a_new_channel_takes_the_bound_that_its_first_use_brings(kernel: Kernel) -> None:
    """The first use of a channel sets its bound, for that very call too; a queue's own policy goes before."""
    assert outcomes(enqueue(kernel, "a", "a", max_backlog=1, drop=True)) == ["created", "dropped"]
    assert outcomes(enqueue(kernel, "a", "b")) == ["dropped", "created"]
    bound(kernel, None, 2)
    assert outcomes(enqueue(kernel, "c", "c", "c", max_backlog=1, drop=True)) == ["created", "created", "full"]


def test_an_unbounded_channel_is_never_full(kernel: Kernel) -> None:
    """Without max_backlog nothing is refused, and no signal is marked. A bound counts what has been heard; lifting it
    lets all in.
    """
    enqueue(kernel, *["a"] * 50)
    assert kernel.value("select count(*) from fq_signal where bounded") == 0
    kernel.hear()
    bound(kernel, "a", 1)
    assert outcomes(enqueue(kernel, "a")) == ["full"]
    bound(kernel, "a", None)
    assert outcomes(enqueue(kernel, "a")) == ["created"]


def test_serializable_producers_of_a_bounded_channel_conflict(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under SERIALIZABLE two at one bounded channel would not know of each other: one gets 40001, and the bound is
    exact; channels without a bound take both.
    """
    for channel, conflicts in (("free", False), ("bounded", True)):
        bound(kernel, "bounded", 1)
        enqueue(kernel, "free")
        kernel.hear()
        first, second = open_kernel(isolation="SERIALIZABLE"), open_kernel(isolation="SERIALIZABLE")
        assert outcomes(enqueue(first, channel)) == outcomes(enqueue(second, channel)) == ["created"]
        first.commit()
        if conflicts:
            with pytest.raises(errors.SerializationFailure):
                second.commit()
        else:
            second.commit()
    assert unbalanced(kernel) == []
