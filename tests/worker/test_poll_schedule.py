"""Poll schedule of a queue."""

from collections.abc import Callable

import pytest

from sqlalchemy_fairqueue.worker.timings import PollSchedule, Timings


def test_soon_at_first_then_later() -> None:
    """Polls that give nothing come ever later, up to the interval."""
    polls, now, waits = PollSchedule(1.0, Timings()), 100.0, []
    for _ in range(15):
        polls.nothing(now, None)
        waits.append(polls.next_at - now)
        now = polls.next_at
    assert waits == sorted(waits)
    assert waits[0] < 0.01
    assert waits[-1] == 1.0


def _waiting(polls: PollSchedule, now: float, until: float) -> float:
    """Begin to wait; returns when the worker has polled for the last time before it relies on being woken."""
    polls.wait_begun(now, until)
    while True:
        polls.begin(now)
        polls.nothing(now, None)
        if polls.next_at - now >= min(polls.interval, until - now):
            return now
        now = polls.next_at


def test_it_polls_a_few_times_as_it_begins_to_wait() -> None:
    """What was enqueued before the wait and committed after the poll is found by further polls, ever later."""
    polls, now, waits = PollSchedule(60.0, Timings()), 100.0, []
    polls.nothing(now, None)
    assert polls.needs_wait(now)
    polls.wait_begun(now, now + 121)
    for _ in range(3):
        polls.begin(now)
        polls.nothing(now, None)
        waits.append(polls.next_at - now)
        now = polls.next_at
    assert [round(wait, 2) for wait in waits] == [0.2, 8.0, 60.0]


def test_it_waits() -> None:
    """A worker that waits does not poll for the interval, or until its wait ends; a longer one keeps it so."""
    polls = PollSchedule(5.0, Timings())
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
    polls = PollSchedule(3600.0, Timings())
    polls.wait_begun(100.0, 7300.0)
    polls.begin(100.0)
    assert not polls.poll_now(100.1)
    polls.nothing(100.2, None)
    assert polls.next_at == 100.1
    polls.begin(100.3)
    polls.nothing(100.4, None)
    assert polls.next_at > 100.5
    assert polls.poll_now(100.5)
    assert polls.next_at == 100.5
    assert not polls.poll_now(100.6)


def _waiter() -> PollSchedule:
    polls = PollSchedule(3600.0, Timings())
    _waiting(polls, 100.0, 9999.0)
    return polls


def _poll(polls: PollSchedule, now: float, found: int = 0) -> float:
    """A poll at that time; returns when the next one is."""
    polls.begin(now)
    polls.found(now + 0.001, None, count=1, full=False) if found else polls.nothing(now + 0.001, None)
    return polls.next_at


def test_what_another_consumer_was_woken_for_is_left_to_it_for_a_moment() -> None:
    """Named, it polls at once; not named, a moment after the first notification, however many follow."""
    polls = _waiter()
    assert polls.poll_now(500.02)
    assert not polls.poll_now(500.03)
    assert polls.next_at == 500.02
    assert polls.poll_now(500.015)
    assert polls.next_at == 500.015


def test_a_poll_is_for_all_that_was_said_before_it() -> None:
    """A poll sees what others were woken for before it; for what they are woken for later there is another one."""
    polls = _waiter()
    polls.poll_now(500.02)
    assert _poll(polls, 500.005) > 501
    polls.begin(600.0)
    polls.poll_now(600.021)
    polls.nothing(600.002, None)
    assert polls.next_at == 600.021


@pytest.mark.parametrize("ask", [PollSchedule.poll_now, PollSchedule.poll_at])
def test_what_is_asked_for_during_a_poll_is_kept(ask: Callable[[PollSchedule, float], object]) -> None:
    """What was committed after a poll's snapshot, or is to be tried again when it missed that, is polled at once."""
    polls = PollSchedule(3600.0, Timings())
    _waiting(polls, 100.0, 7300.0)
    polls.begin(500.0)
    ask(polls, 500.001)
    polls.nothing(500.002, None)
    assert polls.next_at <= 500.002
    polls.begin(500.003)
    polls.nothing(500.004, None)
    assert polls.next_at > 4000


def test_what_is_locked_does_not_spin() -> None:
    """Work that is due but in another's hands is polled for again soon, not at once."""
    polls, now = PollSchedule(5.0, Timings()), 100.0
    for _ in range(20):
        polls.nothing(now, 0.0)
        assert 0.002 < polls.next_at - now <= 0.05
        now = polls.next_at


def test_what_stays_locked_is_polled_for_ever_later() -> None:
    """The time that the database gives for it is kept, and a worker that drains does not take it for nothing."""
    polls = PollSchedule(5.0, Timings())
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
        polls.begin(now)
        polls.found(now, None, count=count, full=False)
        busy = busy or polls.needs_no_wait()
    return now, busy


@pytest.mark.parametrize(("count", "apart"), [(1, 0.0065), (2, 0.013)])
def test_busy_again_and_again(count: int, apart: float) -> None:
    """The wait is taken back where 140 messages a second come for a while; not for a moment's work."""
    polls = PollSchedule(5.0, Timings())
    polls.wait_begun(100.0, 111.0)
    now, busy = _stream(polls, 100.0, apart, 5, count)
    assert not busy
    assert _stream(polls, now, apart, 40, count)[1]


def test_without_its_wait_it_polls_soon() -> None:
    """A worker that relied on its wait, and takes it back, is woken by nobody any more."""
    polls = PollSchedule(5.0, Timings())
    now = _waiting(polls, 100.0, 9999.0)
    now, busy = _stream(polls, now, 0.003, 60)
    assert busy
    assert polls.next_at - now > 0.1
    polls.wait_ended(now)
    assert polls.next_at - now == pytest.approx(0.005)


def test_a_miss_now_and_then_begins_no_wait() -> None:
    """A poll that gives nothing in a stream is chance: the next comes as soon, until few came for a while."""
    polls = PollSchedule(5.0, Timings())
    polls.wait_begun(100.0, 111.0)
    now, busy = _stream(polls, 100.0, 0.003, 60)
    assert busy
    polls.wait_ended(now)
    ended = now
    while not polls.needs_wait(now):
        polls.begin(now)
        polls.nothing(now, None)
        assert polls.next_at - now == pytest.approx(0.005)
        now = polls.next_at
    assert 0.01 < now - ended < 0.2


@pytest.mark.parametrize("count", [1, 500])
def test_much_at_once_is_no_stream(count: int) -> None:
    """One transaction with many messages notifies once: its worker keeps its wait."""
    polls = PollSchedule(5.0, Timings())
    polls.wait_begun(100.0, 111.0)
    polls.found(100.1, None, count=count, full=False)
    assert not polls.needs_no_wait()


@pytest.mark.parametrize("apart", [0.009, 0.05])
def test_busy_now_and_then(apart: float) -> None:
    """The wait stays where messages come one at a time: each wakes the worker and costs one poll, as polling does."""
    polls, now = PollSchedule(5.0, Timings()), 100.0
    polls.wait_begun(now, 111.0)
    polls.nothing(now, None)
    for _ in range(50):
        now += apart
        polls.poll_now(now)
        polls.begin(now)
        polls.found(now, None, count=1, full=False)
        assert polls.next_at - now >= 0.2
        assert not polls.needs_no_wait()


def test_what_wakes_it_leaves_the_further_polls() -> None:
    """However often it is woken, what was enqueued before the wait and committed after a poll is found as soon."""
    polls, now = PollSchedule(60.0, Timings()), 100.0
    polls.wait_begun(now, 221.0)
    for _ in range(10):
        polls.poll_now(now)
        polls.begin(now)
        polls.found(now, None, count=1, full=False)
        now += 0.001
    assert polls.next_at < 101.0
