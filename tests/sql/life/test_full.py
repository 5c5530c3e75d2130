"""fq_enqueue: channels with a bound of their backlog."""

import pytest
from psycopg import errors

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on
from tests.sql.kernel.verbs import bound, unbalanced
from tests.sql.life.verbs import outcomes


def _waiting(kernel: Kernel) -> int:
    waiting: int = kernel.value("select count(*) from fq_message where lease_id is null")
    return waiting


def test_producers_at_the_edge_do_not_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Two producers of the last message that fits both add it, for neither sees the other's open transaction. Each is
    counted once, and the next one finds the channel full.
    """
    bound(kernel, "a", 2)
    kernel.enqueue("a")
    first = open_kernel()
    assert outcomes(first.enqueue("a")) == ["created"]
    assert outcomes(waits.unhindered(on(lambda second: second.enqueue("a")))) == ["created"]
    first.commit()
    assert outcomes(kernel.enqueue("a")) == ["full"]
    assert unbalanced(kernel) == []
    kernel.hear()
    assert kernel.state("a")["backlog"] == 3


def test_a_hearing_in_flight_counts_nothing_twice(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """While a signal is being heard it counts once: before the commit as a signal, after it in the backlog."""
    bound(kernel, "a", 3)
    kernel.enqueue("a")
    dispatcher = open_kernel()
    dispatcher.hear()
    assert outcomes(kernel.enqueue("a")) == ["created"]
    dispatcher.commit()
    assert outcomes(kernel.enqueue("a", "a")) == ["created", "full"]


def test_a_new_channel_takes_the_bound_that_its_first_use_brings(kernel: Kernel) -> None:
    """The first use of a channel sets its bound, for that very call too; a queue's own policy goes before."""
    policy: dict[str, object] = {"max_backlog": 1, "on_full": "drop"}
    assert outcomes(kernel.enqueue("a", "a", policy=policy)) == ["created", "dropped"]
    assert outcomes(kernel.enqueue("a", "b")) == ["dropped", "created"]
    bound(kernel, None, 2)
    assert outcomes(kernel.enqueue("c", "c", "c", policy=policy)) == [
        "created",
        "created",
        "full",
    ]


def test_an_unbounded_channel_is_never_full(kernel: Kernel) -> None:
    """Without max_backlog nothing is refused, and no signal is marked. A bound counts what has been heard; lifting it
    lets all in.
    """
    kernel.enqueue(*["a"] * 50)
    assert kernel.value("select count(*) from fq_signal where bounded") == 0
    kernel.hear()
    bound(kernel, "a", 1)
    assert outcomes(kernel.enqueue("a")) == ["full"]
    bound(kernel, "a", None)
    assert outcomes(kernel.enqueue("a")) == ["created"]


def test_serializable_producers_of_a_bounded_channel_conflict(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under SERIALIZABLE two at one bounded channel would not know of each other: one gets 40001, and the bound is
    exact; channels without a bound take both.
    """
    for channel, conflicts in (("free", False), ("bounded", True)):
        bound(kernel, "bounded", 1)
        kernel.enqueue("free")
        kernel.hear()
        first, second = open_kernel(isolation="SERIALIZABLE"), open_kernel(isolation="SERIALIZABLE")
        assert outcomes(first.enqueue(channel)) == outcomes(second.enqueue(channel)) == ["created"]
        first.commit()
        if conflicts:
            with pytest.raises(errors.SerializationFailure):
                second.commit()
        else:
            second.commit()
    assert unbalanced(kernel) == []
