"""Wake events of a worker's threads."""

import threading

from sqlalchemy_fairqueue.worker.threads import WakeEvent


def test_a_set_event_is_kept_until_it_is_taken() -> None:
    """However often it was set, and whether before the wait or in it, one wait takes it."""
    event = WakeEvent()
    assert not event.wait(0)
    event.set()
    event.set()
    assert event.wait(None)
    assert not event.wait(-1.0)
    setter = threading.Timer(0.01, event.set)
    setter.start()
    assert event.wait(30)
    setter.join()


def test_no_event_is_lost() -> None:
    """What many threads leave before they set it is found by the thread that waits whenever there is nothing."""
    event, left, found = WakeEvent(), list[int](), 0
    each, threads = 2_000, 4

    def set_often() -> None:
        for number in range(each):
            left.append(number)
            event.set()

    setters = [threading.Thread(target=set_often) for _ in range(threads)]
    for setter in setters:
        setter.start()
    while found < each * threads:
        while left:
            left.pop()
            found += 1
        assert found == each * threads or event.wait(30)
    for setter in setters:
        setter.join()
    assert not left
