"""Times of a worker: polls of a queue, messages ahead of their handlers, and the backoff while the database is away."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.queue.consumer import Consumer
from sqlalchemy_fairqueue.worker.fetcher import Fetcher
from sqlalchemy_fairqueue.worker.options import MOST_PREFETCH
from sqlalchemy_fairqueue.worker.timings import Backoff, PollSchedule, Prefetch, Timings
from tests.worker.conftest import StartWorker
from tests.worker.helpers import until

_TIMINGS = Timings()


def _schedule(interval: float = 5.0) -> PollSchedule:
    return PollSchedule(interval, _TIMINGS)


def _poll(polls: PollSchedule, now: float, found: int = 0) -> float:
    """A poll at that time that finds so many; returns for how long the next one is put off."""
    polls.begin(now)
    polls.found(now, None, count=found, full=False) if found else polls.nothing(now, None)
    return polls.next_at - now


def _waiting(polls: PollSchedule, now: float, until: float) -> float:
    """Begin to wait; returns when the worker has polled for the last time before it relies on being woken."""
    polls.wait_begun(now, until)
    while _poll(polls, now) < min(polls.interval, until - now):
        now = polls.next_at
    return now


def test_soon_at_first_then_later() -> None:
    """Polls that give nothing come ever later, up to the interval."""
    polls, now, waits = _schedule(1.0), 100.0, []
    for _ in range(15):
        waits.append(_poll(polls, now))
        now = polls.next_at
    assert waits == sorted(waits)
    assert waits[0] < 0.01
    assert waits[-1] == 1.0


def test_it_polls_a_few_times_as_it_begins_to_wait() -> None:
    """What was enqueued before the wait and committed after the poll is found by further polls, ever later.

    However often it is woken meanwhile, they come as soon.
    """
    polls, now, waits = _schedule(60.0), 100.0, []
    _poll(polls, now)
    assert polls.needs_wait(now)
    polls.wait_begun(now, now + 121)
    for _ in range(3):
        waits.append(round(_poll(polls, now), 2))
        now = polls.next_at
    assert waits == [0.2, 8.0, 60.0]
    polls, now = _schedule(60.0), 100.0
    polls.wait_begun(now, 221.0)
    for _ in range(10):
        polls.poll_now(now)
        _poll(polls, now, 1)
        now += 0.001
    assert polls.next_at < 101.0


def test_it_waits() -> None:
    """A worker that waits does not poll for the interval, or until its wait ends; a longer one keeps it so."""
    polls = _schedule()
    now = _waiting(polls, 100.0, 111.0)
    assert polls.next_at == now + 5
    assert not polls.needs_wait(105.1)
    polls.nothing(105.9, None)
    assert polls.next_at == 110.9
    assert polls.needs_wait(110.9)
    polls.wait_begun(110.9, 121.9)
    polls.nothing(110.9, None)
    assert polls.next_at == 115.9


def test_poll_now_says_whether_it_changed_anything() -> None:
    """A worker that is about to poll, or polls just now, need not wake up for it; what it is about still counts."""
    polls = _schedule(3600.0)
    polls.wait_begun(100.0, 7300.0)
    polls.begin(100.0)
    assert not polls.poll_now(100.1)
    polls.nothing(100.2, None)
    assert polls.next_at == 100.1
    _poll(polls, 100.3)
    assert polls.next_at > 100.5
    assert polls.poll_now(100.5)
    assert polls.next_at == 100.5
    assert not polls.poll_now(100.6)


def test_what_others_are_woken_for() -> None:
    """Named, it polls at once; not named, a moment after the first notification, however many follow.

    A poll sees what others were woken for before it; for what they are woken for later there is another one.
    """
    polls = _schedule(3600.0)
    _waiting(polls, 100.0, 9999.0)
    assert polls.poll_now(500.02)
    assert not polls.poll_now(500.03)
    assert polls.next_at == 500.02
    assert polls.poll_now(500.015)
    assert polls.next_at == 500.015
    assert _poll(polls, 500.005) > 1
    polls.begin(600.0)
    polls.poll_now(600.021)
    polls.nothing(600.002, None)
    assert polls.next_at == 600.021


@pytest.mark.parametrize("ask", [PollSchedule.poll_now, PollSchedule.poll_at])
def test_what_is_asked_for_during_a_poll_is_kept(ask: Callable[[PollSchedule, float], object]) -> None:
    """What was committed after a poll's snapshot, or is to be tried again when it missed that, is polled at once."""
    polls = _schedule(3600.0)
    _waiting(polls, 100.0, 7300.0)
    polls.begin(500.0)
    ask(polls, 500.001)
    polls.nothing(500.002, None)
    assert polls.next_at <= 500.002
    assert _poll(polls, 500.003) > 3000


def test_what_is_locked() -> None:
    """Work that is due but in another's hands is polled for again soon, not at once, and where it stays so ever later.

    The time that the database gives for it is kept, and a worker that drains does not take it for nothing.
    """
    polls, now = _schedule(), 100.0
    for _ in range(20):
        polls.nothing(now, 0.0)
        assert 0.002 < polls.next_at - now <= 0.05
        now = polls.next_at
    polls = _schedule()
    _waiting(polls, 50.0, 10_000.0)
    polls.begin(100.0)
    polls.nothing(100.0, 0.8, locked=True)
    assert polls.next_at == 100.8
    assert polls.empty_at == 0


def _stream(polls: PollSchedule, now: float, apart: float, finds: int, count: int = 1) -> tuple[float, bool]:
    """Finds that come so many seconds apart; the time after them, and whether the wait was to be taken back at any."""
    busy = False
    for _ in range(finds):
        now += apart
        _poll(polls, now, count)
        busy = busy or polls.needs_no_wait()
    return now, busy


@pytest.mark.parametrize(("count", "apart"), [(1, 0.0065), (2, 0.013)])
def test_busy_again_and_again(count: int, apart: float) -> None:
    """The wait is taken back where 140 messages a second come for a while; not for a moment's work."""
    polls = _schedule()
    polls.wait_begun(100.0, 111.0)
    now, busy = _stream(polls, 100.0, apart, 5, count)
    assert not busy
    assert _stream(polls, now, apart, 40, count)[1]


def test_without_its_wait() -> None:
    """A worker that relied on its wait, and takes it back, polls soon: it is woken by nobody any more.

    A poll that gives nothing in a stream is chance: the next comes as soon, until few came for a while.
    """
    polls = _schedule()
    now, busy = _stream(polls, _waiting(polls, 100.0, 9999.0), 0.003, 60)
    assert busy
    assert polls.next_at - now > 0.1
    polls.wait_ended(now)
    assert polls.next_at - now == pytest.approx(0.005)
    ended = now
    while not polls.needs_wait(now):
        assert _poll(polls, now) == pytest.approx(0.005)
        now = polls.next_at
    assert 0.01 < now - ended < 0.2


@pytest.mark.parametrize(("count", "apart", "finds"), [(500, 0.1, 1), (1, 0.009, 50), (1, 0.05, 50)])
def test_what_is_no_stream(count: int, apart: float, finds: int) -> None:
    """The wait stays where messages come one at a time: each wakes the worker and costs one poll, as polling does.

    One transaction with many messages notifies once.
    """
    polls, now = _schedule(), 100.0
    polls.wait_begun(now, 111.0)
    _poll(polls, now)
    for _ in range(finds):
        now += apart
        polls.poll_now(now)
        assert _poll(polls, now, count) >= 0.2
        assert not polls.needs_no_wait()


def _observed(
    seconds: float, concurrency: int = 8, most: int = MOST_PREFETCH, trip: float | None = _TIMINGS.ahead
) -> Prefetch:
    """What has seen handlers that take so long, and dequeues unless None."""
    prefetch = Prefetch(concurrency, _TIMINGS, most)
    for _ in range(200):
        prefetch.observe(seconds)
        if trip is not None:
            prefetch.fetched(trip)
    return prefetch


def test_what_is_not_known_yet() -> None:
    """A worker that has seen no handler takes as many messages as it has slots, and before a dequeue none ahead."""
    assert Prefetch(8, _TIMINGS, MOST_PREFETCH).room(8, 0, 0.0) == 8
    assert _observed(0.01, trip=None).ahead(0.0) == 0


def test_the_buffer_lasts_while_a_dequeue_is_under_way() -> None:
    """Eight handlers of 10 ms begin 2.4 messages while a dequeue takes 3 ms: half a buffer has more, not much more.

    One handler of 50 ms has none: the next message comes in 3 ms, which nobody notices.
    """
    prefetch = _observed(0.01, trip=0.003)
    assert 2.4 < prefetch.ahead(0.0) / 2 < 2 * 2.4
    assert prefetch.ahead(0.0) == int(8 * _TIMINGS.trips * 0.003 / 0.01)
    assert _observed(0.05, concurrency=1, trip=0.003).ahead(0.0) == 0


def test_a_tenth_of_a_second_of_work() -> None:
    """No more than that waits, however long a dequeue takes, up to a limit; of handlers that take longer, nothing."""
    for trip in (_TIMINGS.ahead, 10.0):
        assert _observed(0.01, trip=trip).ahead(0.0) in {79, 80}
    assert [_observed(0.00001, most=most).ahead(0.0) for most in (MOST_PREFETCH, 50, 0)] == [MOST_PREFETCH, 50, 0]
    assert [_observed(0.2).room(free, 0, 0.0) for free in (0, 3)] == [0, 3]


def test_half_a_buffer_at_once() -> None:
    """While handlers have work, a call is only worth it for half a buffer; when all have been busy for long, for none.

    Quick handlers of a moment ago say nothing then.
    """
    prefetch, half = _observed(0.00001), MOST_PREFETCH // 2
    assert [prefetch.room(0, buffered, 0.0) for buffered in (half + 1, half)] == [0, half]
    assert prefetch.room(0, 0, _TIMINGS.ahead) == 0


def test_waits_are_bounded() -> None:
    """However many failures there were, the next attempt comes within the longest wait."""
    backoff = Backoff("do it", "me", monotonic, _TIMINGS, cap=0.5)
    waits = [backoff.failed(ValueError()) for _ in range(20)]
    assert 0 < min(waits) <= max(waits) <= 0.5


def test_its_end_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """What works on says nothing more, and the next backoff is another one."""
    backoff = Backoff("do it", "me", monotonic, _TIMINGS)
    for _ in range(2):
        backoff.failed(ValueError())
        for _ in range(3):
            backoff.succeeded()
    assert ["again, after" in record.getMessage() for record in caplog.records] == [False, True] * 2
    assert all("1 failures" in record.getMessage() for record in caplog.records[1::2])


def test_a_failing_dequeue_is_not_hammered(handled: Queue, start: StartWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each failure the next poll is put off."""
    put_off: list[bool] = []
    original = Fetcher._take

    def take(fetcher: Fetcher, due: list[Any], room: int) -> None:
        before = [served.polls.next_at for served in due]
        original(fetcher, due, room)
        put_off.extend(served.polls.next_at > at for served, at in zip(due, before, strict=True))

    def refuse(*_: object) -> None:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(Fetcher, "_take", take)
    monkeypatch.setattr(Consumer, "dequeue", refuse)
    worker = start(handled, listen=False)
    until(lambda: len(put_off) >= 3, "it has failed three times")
    assert all(put_off)
    assert worker.stats.failures >= 3
