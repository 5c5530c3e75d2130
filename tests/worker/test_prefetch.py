"""Number of messages that a worker may hold."""

from sqlalchemy_fairqueue.worker.options import MOST_PREFETCH
from sqlalchemy_fairqueue.worker.timings import Prefetch, Timings

_TIMINGS = Timings()


def _observed(
    seconds: float, concurrency: int = 8, most: int = MOST_PREFETCH, trip: float = _TIMINGS.ahead
) -> Prefetch:
    prefetch = Prefetch(concurrency, _TIMINGS, most)
    for _ in range(200):
        prefetch.observe(seconds)
        prefetch.fetched(trip)
    return prefetch


def test_nothing_is_known_at_first() -> None:
    """A worker that has seen no handler takes as many messages as it has slots."""
    assert Prefetch(8, _TIMINGS, MOST_PREFETCH).room(8, 0, 0.0) == 8


def test_nothing_is_ahead_before_the_first_dequeue() -> None:
    """How long a dequeue takes is not known before there was one."""
    prefetch = Prefetch(8, _TIMINGS, MOST_PREFETCH)
    for _ in range(200):
        prefetch.observe(0.01)
    assert prefetch.ahead(0.0) == 0


def test_the_buffer_lasts_while_a_dequeue_is_under_way() -> None:
    """Eight handlers of 10 ms begin 2.4 messages while a dequeue takes 3 ms: half a buffer has more, not much more."""
    prefetch = _observed(0.01, trip=0.003)
    assert 2.4 < prefetch.ahead(0.0) / 2 < 2 * 2.4
    assert prefetch.ahead(0.0) == int(8 * _TIMINGS.trips * 0.003 / 0.01)


def test_a_slow_database_does_not_fill_the_buffer() -> None:
    """However long a dequeue takes, no more than a tenth of a second's work waits."""
    assert _observed(0.01, trip=10.0).ahead(0.0) in {79, 80}


def test_handlers_that_outlast_the_dequeue_have_no_buffer() -> None:
    """One handler of 50 ms: the next message comes in 3 ms, which nobody notices."""
    assert _observed(0.05, concurrency=1, trip=0.003).ahead(0.0) == 0


def test_slow_handlers_have_no_buffer() -> None:
    """With handlers that take longer than a tenth of a second nothing is taken before a slot is free."""
    prefetch = _observed(0.2)
    assert prefetch.room(0, 0, 0.0) == 0
    assert prefetch.room(3, 0, 0.0) == 3


def test_quick_handlers_have_a_buffer() -> None:
    """A tenth of a second's work may wait while dequeues take long, up to a limit."""
    assert _observed(0.01).ahead(0.0) in {79, 80}
    assert _observed(0.00001).ahead(0.0) == MOST_PREFETCH
    assert _observed(0.00001, most=50).ahead(0.0) == 50
    assert _observed(0.00001, most=0).ahead(0.0) == 0


def test_half_a_buffer_at_once() -> None:
    """While handlers have work, a call is only worth it for half a buffer."""
    prefetch = _observed(0.00001)
    assert prefetch.room(0, MOST_PREFETCH // 2 + 1, 0.0) == 0
    assert prefetch.room(0, MOST_PREFETCH // 2, 0.0) == MOST_PREFETCH // 2


def test_what_has_not_ended_counts() -> None:
    """When all slots have been busy for long, quick handlers of a moment ago fill no buffer."""
    prefetch = _observed(0.00001)
    assert prefetch.room(0, 0, _TIMINGS.ahead) == 0
