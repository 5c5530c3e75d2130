"""Dequeues while an open transaction keeps what is due locked: due_in says to come back ever later."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.fixtures.clock import Clock
from tests.sql.client import SECOND, Kernel, OpenKernel
from tests.sql.kernel.verbs import pause

# A worker's pause between two polls, at least.
_LEAST = 2500


def _later(kernel: Kernel) -> None:
    """A channel's state row is locked, and a signal comes that nobody can apply meanwhile."""
    pause(kernel, "b")


def _now(kernel: Kernel) -> None:
    pause(kernel, "a")


KEEPS: dict[str, Callable[[Kernel], object]] = {
    "a paused channel": _now,
    "a configured channel": lambda kernel: kernel.configure("a", 5),
    "a channel with a new message": _later,
}


def _polls(kernel: Kernel, clock: Clock, seconds: int) -> int:
    """How many dequeues a consumer makes in so much time, if it takes nothing."""
    end, polls = kernel.value("select fq_now()") + seconds * SECOND, 0
    while kernel.value("select fq_now()") < end:
        call = kernel.dequeue(10)
        assert call.hands == []
        assert call.is_held
        assert call.due_in is not None
        polls += 1
        clock.advance(timedelta(microseconds=max(call.due_in, _LEAST)))
    return polls


@pytest.mark.parametrize("keeps", KEEPS)
def test_it_comes_back_ever_later(kernel: Kernel, open_kernel: OpenKernel, clock: Clock, keeps: str) -> None:
    """It is due ever later, up to a second. What is free again is found at once, and the next lock is new."""
    kernel.enqueue("b")
    assert len(kernel.dequeue(10).hands) == 1
    kernel.enqueue("a")
    if "new message" in keeps:
        assert len(kernel.dequeue(10).hands) == 1
    business = open_kernel()
    KEEPS[keeps](business)
    if "new message" in keeps:
        kernel.enqueue("b")

    polls = _polls(kernel, clock, 60)

    # The clock goes on during calls, too.
    assert 30 <= polls < 75
    business.rollback()
    call = kernel.dequeue(10)
    assert len(call.hands) == 1
    kernel.release(*call.hands)
    KEEPS[keeps](business)
    assert kernel.dequeue(10).due_in in {0, 10_000}


def test_a_channel_that_others_serve(kernel: Kernel, open_kernel: OpenKernel, clock: Clock) -> None:
    """A consumer that finds a channel locked by another dequeue each time comes back as soon as at first."""
    kernel.enqueue(*"a" * 12)
    other = open_kernel()
    for _ in range(12):
        assert len(other.dequeue().hands) == 1
        call = kernel.dequeue()
        assert (call.hands, call.due_in) == ([], 10_000)
        other.commit()
        clock.advance(timedelta(seconds=1))
