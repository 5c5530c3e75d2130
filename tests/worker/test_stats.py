"""Counters of a worker."""

import copy
import pickle
import threading
from typing import Self

from sqlalchemy_fairqueue.reports import WorkerStats


class _Rival(int):
    """A number during whose addition another thread counts a failure, or has at least begun to."""

    def __new__(cls, value: int, stats: WorkerStats) -> Self:
        rival = super().__new__(cls, value)
        rival.thread = threading.Thread(target=stats.count, args=("failures",))
        return rival

    thread: threading.Thread

    def __add__(self, other: int) -> int:
        if self.thread.ident is None:
            self.thread.start()
            # A thread that has to wait for this addition cannot end before it.
            self.thread.join(0.05)
        return int(self) + other


def test_no_failure_is_lost_between_threads() -> None:
    """Several threads of a worker count failures: two at the same time are two."""
    stats = WorkerStats()
    stats.failures = rival = _Rival(0, stats)
    stats.count("failures")
    rival.thread.join()
    assert stats.failures == 2


def test_copies_are_figures_of_a_moment() -> None:
    """A program may keep, send and compare what a worker has counted, and the copy counts for itself."""
    stats = WorkerStats(taken=3, failures=1)
    copies = [copy.copy(stats), copy.deepcopy(stats), pickle.loads(pickle.dumps(stats))]  # noqa: S301 - our own
    assert copies == [stats] * 3
    for one in copies:
        one.count("failures")
    assert [one.as_dict()["failures"] for one in (stats, *copies)] == [1, 2, 2, 2]


def test_only_counters_are_counters() -> None:
    """What is exported as counters never falls: the number of handlers that hang is apart."""
    stats = WorkerStats()
    assert [stats.count("hung"), stats.count("hung"), stats.count("hung", -1)] == [1, 2, 1]
    assert stats.hung == 1
    assert "hung" not in stats.as_dict()
    assert "timed_out" in stats.as_dict()
