"""When a worker looks for work."""

import pytest

from sqlalchemy_fairqueue.worker.polls import PollSchedule


def test_after_a_full_batch_at_once() -> None:
    """A queue that gave all that was asked for is looked at again at once."""
    looks = PollSchedule(5.0)
    looks.found(100.0, 0.0, count=1, full=True)
    assert looks.next_at == 100.0


def test_soon_at_first_then_later() -> None:
    """PollSchedule that give nothing come ever later, up to the interval."""
    looks, now, waits = PollSchedule(1.0), 100.0, []
    for _ in range(15):
        looks.nothing(now, None)
        waits.append(looks.next_at - now)
        now = looks.next_at
    assert waits == sorted(waits)
    assert waits[0] < 0.01
    assert waits[-1] == 1.0


def _asleep(looks: PollSchedule, now: float, until: float) -> float:
    """Fall asleep under a mark; returns when the worker looks for the first time after it trusts the mark."""
    looks.marked(now, until)
    while True:
        looks.begin(now)
        looks.nothing(now, None)
        if looks.next_at - now >= min(looks.interval, until - now):
            return now
        now = looks.next_at


def test_falling_asleep_it_looks_a_few_times() -> None:
    """What was enqueued before the mark and committed after the look is found by further looks, ever later."""
    looks, now, waits = PollSchedule(60.0), 100.0, []
    looks.nothing(now, None)
    assert looks.needs_mark(now)
    looks.marked(now, now + 121)
    for _ in range(3):
        looks.begin(now)
        looks.nothing(now, None)
        waits.append(looks.next_at - now)
        now = looks.next_at
    assert [round(wait, 2) for wait in waits] == [0.2, 8.0, 60.0]


def test_marked_it_sleeps() -> None:
    """A worker that is marked as asleep sleeps for the interval, or until its mark ends; a longer mark keeps it so."""
    looks = PollSchedule(5.0)
    now = _asleep(looks, 100.0, 111.0)
    assert looks.next_at == now + 5
    assert not looks.needs_mark(105.1)
    looks.nothing(105.9, None)
    assert looks.next_at == 110.9
    assert looks.needs_mark(110.9)
    looks.marked(110.9, 121.9)
    looks.nothing(110.9, None)
    assert looks.next_at == 115.9


def test_a_nudge_says_whether_it_changed_anything() -> None:
    """Who is about to look anyway, or looks just now, need not wake up for a nudge; what it is about still counts."""
    looks = PollSchedule(3600.0)
    looks.marked(100.0, 7300.0)
    looks.begin(100.0)
    assert not looks.nudge(100.1)
    looks.nothing(100.2, None)
    assert looks.next_at == 100.0
    looks.begin(100.3)
    looks.nothing(100.4, None)
    assert looks.next_at > 100.5
    assert looks.nudge(100.5)
    assert looks.next_at == 100.5
    assert not looks.nudge(100.6)


def _sleeper() -> PollSchedule:
    looks = PollSchedule(3600.0)
    _asleep(looks, 100.0, 9999.0)
    return looks


def _look(looks: PollSchedule, now: float, found: int = 0) -> float:
    """A look at that time; returns when the next one is."""
    looks.begin(now)
    looks.found(now + 0.001, None, count=1, full=False) if found else looks.nothing(now + 0.001, None)
    return looks.next_at


def test_what_another_consumer_was_woken_for_is_left_to_it_for_a_moment() -> None:
    """Named, it looks at once; not named, a moment after the first notification, however many follow."""
    looks = _sleeper()
    assert looks.others_woken(500.0)
    assert not looks.others_woken(500.01)
    assert looks.next_at == 500.02
    assert looks.nudge(500.015)
    assert looks.next_at == 500.015


def test_a_look_is_for_all_that_was_said_before_it() -> None:
    """What others were woken for before a look began is in it; what they are woken for after that is looked for."""
    looks = _sleeper()
    looks.others_woken(500.0)
    assert _look(looks, 500.005) > 501
    looks.begin(600.0)
    looks.others_woken(600.001)
    looks.nothing(600.002, None)
    assert looks.next_at == 600.021


def test_a_nudge_during_a_look_is_kept() -> None:
    """What was committed after a look's snapshot, and told before the look ended, is looked for at once."""
    looks = PollSchedule(3600.0)
    _asleep(looks, 100.0, 7300.0)
    looks.begin(500.0)
    looks.nudge(500.001)
    looks.nothing(500.002, None)
    assert looks.next_at <= 500.002
    looks.begin(500.003)
    looks.nothing(500.004, None)
    assert looks.next_at > 4000


def test_a_hint_during_a_look_is_kept() -> None:
    """A message that is to be tried again at a moment that a look may have missed is looked for at once."""
    looks = PollSchedule(3600.0)
    _asleep(looks, 100.0, 7300.0)
    looks.begin(500.0)
    looks.hint(500.001)
    looks.nothing(500.002, None)
    assert looks.next_at <= 500.002
    looks.begin(500.003)
    looks.nothing(500.004, None)
    assert looks.next_at > 4000


def test_due_in_is_kept() -> None:
    """The next scheduled message ends the sleep, exactly when it is due."""
    looks = PollSchedule(3600.0)
    _asleep(looks, 50.0, 10_000.0)
    looks.nothing(100.0, 7.25)
    assert looks.next_at == 107.25


def test_what_is_locked_does_not_spin() -> None:
    """Work that is due but in another's hands is looked at again soon, not at once."""
    looks, now = PollSchedule(5.0), 100.0
    for _ in range(20):
        looks.nothing(now, 0.0)
        assert 0.002 < looks.next_at - now <= 0.05
        now = looks.next_at


def test_a_hint_is_kept() -> None:
    """A message that this worker gave back for a while ends its sleep."""
    looks = PollSchedule(3600.0)
    _asleep(looks, 50.0, 10_000.0)
    looks.hint(102.0)
    assert looks.next_at == 102.0
    looks.nudge(101.0)
    looks.begin(101.0)
    looks.nothing(101.0, None)
    assert looks.next_at == 102.0


def _stream(looks: PollSchedule, now: float, apart: float, finds: int, count: int = 1) -> tuple[float, bool]:
    """Finds that come so many seconds apart; the time after them, and whether the mark was to be taken away at any."""
    busy = False
    for _ in range(finds):
        now += apart
        looks.begin(now)
        looks.found(now, None, count=count, full=False)
        busy = busy or looks.needs_no_mark()
    return now, busy


@pytest.mark.parametrize(("count", "apart"), [(1, 0.0065), (2, 0.013)])
def test_busy_again_and_again(count: int, apart: float) -> None:
    """The mark is taken away where 140 messages a second come for a while; not for a moment's work."""
    looks = PollSchedule(5.0)
    looks.marked(100.0, 111.0)
    now, busy = _stream(looks, 100.0, apart, 5, count)
    assert not busy
    assert _stream(looks, now, apart, 40, count)[1]


def test_without_its_mark_it_looks_soon() -> None:
    """Whoever slept on under the mark, and takes it away, is woken by nobody any more."""
    looks = PollSchedule(5.0)
    now = _asleep(looks, 100.0, 9999.0)
    now, busy = _stream(looks, now, 0.003, 60)
    assert busy
    assert looks.next_at - now > 0.1
    looks.unmarked(now)
    assert looks.next_at - now == pytest.approx(0.005)


def test_a_miss_now_and_then_leaves_it_awake() -> None:
    """A look that gives nothing while messages stream in is chance: it looks as soon, until few came for a while."""
    looks = PollSchedule(5.0)
    looks.marked(100.0, 111.0)
    now, busy = _stream(looks, 100.0, 0.003, 60)
    assert busy
    looks.unmarked(now)
    ended = now
    while not looks.needs_mark(now):
        looks.begin(now)
        looks.nothing(now, None)
        assert looks.next_at - now == pytest.approx(0.005)
        now = looks.next_at
    assert 0.01 < now - ended < 0.2


@pytest.mark.parametrize("count", [1, 500])
def test_much_at_once_is_no_stream(count: int) -> None:
    """One transaction with many messages notifies once: its worker sleeps on under its mark."""
    looks = PollSchedule(5.0)
    looks.marked(100.0, 111.0)
    looks.found(100.1, None, count=count, full=False)
    assert not looks.needs_no_mark()


def test_a_backlog() -> None:
    """However long handlers take, a worker that gets all it asks for again and again does not sleep."""
    looks, now = PollSchedule(5.0), 100.0
    looks.marked(now, 111.0)
    for _ in range(9):
        assert not looks.needs_no_mark()
        looks.found(now, None, count=1, full=True)
        now += 0.5
    assert looks.needs_no_mark()


@pytest.mark.parametrize("apart", [0.009, 0.05])
def test_busy_now_and_then(apart: float) -> None:
    """It stays where messages come one at a time: each wakes the worker, and costs one look, no more than polling."""
    looks, now = PollSchedule(5.0), 100.0
    looks.marked(now, 111.0)
    looks.nothing(now, None)
    for _ in range(50):
        now += apart
        looks.nudge(now)
        looks.begin(now)
        looks.found(now, None, count=1, full=False)
        assert looks.next_at - now >= 0.2
        assert not looks.needs_no_mark()


def test_what_wakes_it_leaves_the_further_looks() -> None:
    """However often it is woken, what was enqueued before the mark and committed after a look is found as soon."""
    looks, now = PollSchedule(60.0), 100.0
    looks.marked(now, 221.0)
    for _ in range(10):
        looks.nudge(now)
        looks.begin(now)
        looks.found(now, None, count=1, full=False)
        now += 0.001
    assert looks.next_at < 101.0


def test_unmarked_it_looks_soon_after_work() -> None:
    """Nobody wakes a worker that is not marked: it looks again by itself."""
    looks = PollSchedule(5.0)
    looks.found(100.0, None, count=1, full=False)
    assert 0 < looks.next_at - 100.0 < 0.01
