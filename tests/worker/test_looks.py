"""When a worker looks for work."""

from sqlalchemy_fairqueue.worker.looks import Looks


def test_after_a_full_batch_at_once() -> None:
    """A queue that gave all that was asked for is looked at again at once."""
    looks = Looks(5.0)
    looks.found(100.0, 0.0, full=True)
    assert looks.next_at == 100.0


def test_soon_at_first_then_later() -> None:
    """Looks that give nothing come ever later, up to the interval."""
    looks, now, waits = Looks(1.0), 100.0, []
    for _ in range(15):
        looks.nothing(now, None)
        waits.append(looks.next_at - now)
        now = looks.next_at
    assert waits == sorted(waits)
    assert waits[0] < 0.01
    assert waits[-1] == 1.0


def test_marked_it_sleeps() -> None:
    """A worker that is marked as asleep sleeps for the interval, or until its mark ends."""
    looks = Looks(5.0)
    looks.nothing(100.0, None)
    assert looks.needs_mark(100.0)
    looks.marked_until = 111.0
    looks.nothing(100.1, None)
    assert looks.next_at == 105.1
    assert not looks.needs_mark(105.1)
    looks.nothing(105.9, None)
    assert looks.next_at == 110.9
    assert looks.needs_mark(110.9)


def test_due_in_is_kept() -> None:
    """The next scheduled message ends the sleep, exactly when it is due."""
    looks = Looks(3600.0)
    looks.marked_until = 10_000.0
    looks.nothing(100.0, 7.25)
    assert looks.next_at == 107.25


def test_what_is_locked_does_not_spin() -> None:
    """Work that is due but in another's hands is looked at again soon, not at once."""
    looks, now = Looks(5.0), 100.0
    for _ in range(20):
        looks.nothing(now, 0.0)
        assert 0.002 < looks.next_at - now <= 0.05
        now = looks.next_at


def test_a_hint_is_kept() -> None:
    """A message that this worker gave back for a while ends its sleep."""
    looks = Looks(5.0)
    looks.marked_until = 200.0
    looks.nothing(100.0, None)
    looks.hint(102.0)
    assert looks.next_at == 102.0
    looks.nudge(101.0)
    looks.nothing(101.0, None)
    assert looks.next_at == 102.0


def test_busy_again_and_again() -> None:
    """The mark is taken away when work is found twice in a row, not at a single message."""
    looks = Looks(5.0)
    looks.marked_until = 111.0
    looks.found(100.0, None, full=False)
    assert not looks.needs_no_mark()
    looks.found(101.0, None, full=False)
    assert looks.needs_no_mark()
