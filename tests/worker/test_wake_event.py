"""What the threads of a worker sleep on."""

import threading

from sqlalchemy_fairqueue.worker.wake_event import WakeEvent


def test_a_ring_is_kept_until_it_is_taken() -> None:
    """However often it was rung, and whether before the wait or in it, one wait takes it."""
    bell = WakeEvent()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.wait(None)
    assert not bell.wait(-1.0)
    ringer = threading.Timer(0.01, bell.ring)
    ringer.start()
    assert bell.wait(30)
    ringer.join()


def test_no_ring_is_lost() -> None:
    """What many threads leave and ring for is found by the listener, who waits whenever there is nothing."""
    bell, left, found = WakeEvent(), list[int](), 0
    each, threads = 2_000, 4

    def ring() -> None:
        for number in range(each):
            left.append(number)
            bell.ring()

    ringers = [threading.Thread(target=ring) for _ in range(threads)]
    for ringer in ringers:
        ringer.start()
    while found < each * threads:
        while left:
            left.pop()
            found += 1
        assert found == each * threads or bell.wait(30)
    for ringer in ringers:
        ringer.join()
    assert not left
