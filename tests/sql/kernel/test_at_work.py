"""Many at work at the same time: what holds in every snapshot holds then too, and nothing is lost or done twice."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from threading import Event

import pytest

from tests.sql.client import Kernel, OpenKernel
from tests.sql.kernel.verbs import bound, limit, pause, resume, unbalanced

CHANNELS = "abcdef"
LIMIT = 4
AHEAD = 300
"""Messages that producers may be ahead of consumers, so that a slow machine is not left with an ever slower backlog."""


@contextmanager
def at_work(*workers: Callable[[Event], None]) -> Iterator[Event]:
    """Run workers in threads until the block ends; whatever one of them raises, the block raises."""
    stop = Event()
    with ThreadPoolExecutor(max_workers=len(workers)) as threads:
        running = [threads.submit(worker, stop) for worker in workers]
        try:
            yield stop
        finally:
            stop.set()
    for one in running:
        one.result()


class Clients:
    """Producers and consumers, each on a connection of its own, and what became of the messages."""

    def __init__(self, open_kernel: OpenKernel, limit: int = 3) -> None:
        self.open = open_kernel
        self.limit = limit
        self.added: list[int] = []
        self.done: Counter[int] = Counter()

    def producer(self) -> Callable[[Event], None]:
        """Adds messages, a few channels at a time."""
        kernel = self.open(autocommit=True)

        def run(stop: Event) -> None:
            channels = cycle(CHANNELS)
            while not stop.is_set():
                if len(self.added) - len(self.done) > AHEAD:
                    stop.wait(0.002)
                    continue
                self.added += [one.message_id for one in kernel.enqueue(next(channels), next(channels))]

        return run

    def consumer(self, number: int) -> Callable[[Event], None]:
        """Completes what it takes, but for each third, which it gives back at first."""
        kernel = self.open(autocommit=True, name=f"consumer {number}")

        def run(stop: Event) -> None:
            while not stop.is_set():
                call = kernel.dequeue(self.limit)
                back = [hand for hand in call.hands if hand.deliveries == 1 and hand.id % 3 == 0]
                done = [hand for hand in call.hands if hand not in back]
                if back:
                    assert kernel.release(*back) == {}
                if done:
                    assert kernel.complete(*done) == {}
                self.done.update(hand.id for hand in done)

        return run

    def check(self, kernel: Kernel) -> None:
        """Everything was done once, and the sums come out at nought."""
        # A channel whose last poll met another consumer's locks is passed by for a few milliseconds.
        while kernel.value("select count(*) from fq_message"):
            self.done.update(hand.id for hand in kernel.drain())
        assert set(self.done.values()) == {1}
        assert sorted(self.done) == sorted(self.added)
        assert unbalanced(kernel) == []
        assert {kernel.state(channel)["backlog"] for channel in CHANNELS} == {0}


def _pauses_and_limits(kernel: Kernel) -> Iterator[None]:
    for channel in cycle(CHANNELS):
        pause(kernel, channel)
        kernel.configure(channel, 2)
        bound(kernel, channel, 1_000)
        resume(kernel, channel)
        pause(kernel)
        resume(kernel)
        limit(kernel, LIMIT)
        yield


def _a_limit_that_comes_and_goes(kernel: Kernel) -> Iterator[None]:
    for most in cycle((2, None, 5, 1)):
        limit(kernel, most)
        yield


@pytest.mark.parametrize(("administer", "most"), [(_pauses_and_limits, LIMIT), (_a_limit_that_comes_and_goes, 10**6)])
def test_sums_hold_while_all_are_at_work(
    kernel: Kernel, open_kernel: OpenKernel, administer: Callable[[Kernel], Iterator[None]], most: int
) -> None:
    """With consumers, producers and an administrator at work at once, each snapshot has no more messages out than a
    limit of the queue that stays allows, and every sum comes out right; afterwards everything was done once.
    """
    kernel.enqueue(*CHANNELS)
    kernel.drain()
    limit(kernel, LIMIT)
    clients = Clients(open_kernel)
    administrator = open_kernel(autocommit=True)

    def work(stop: Event) -> None:
        for _ in administer(administrator):
            if stop.is_set():
                return

    with at_work(work, clients.producer(), *(clients.consumer(number) for number in range(4))):
        for _ in range(60):
            assert unbalanced(kernel) == []
            assert kernel.value("select count(*) from fq_message where slots & 2 = 2") <= most
    limit(kernel, None)
    clients.check(kernel)
