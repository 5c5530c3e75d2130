"""Threads of a worker: the times and failures of their duties, their wake events, and what they count."""

import copy
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any, Self, cast

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue, SchemaMismatch, Worker
from sqlalchemy_fairqueue.reports import WorkerStats
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.duties import Groups, Heartbeat, Housekeeping, Schedules, StopRequests, by_schema
from sqlalchemy_fairqueue.worker.leases import ServedQueue
from sqlalchemy_fairqueue.worker.threads import Duty, Looper, WakeEvent
from tests.fixtures.clock import Clock
from tests.worker.helpers import until


class _Time:
    """A clock that goes on by what is waited for."""

    def __init__(self) -> None:
        self.now = 100.0

    def set(self) -> None:
        """Nobody waits in another thread."""

    def wait(self, seconds: float | None) -> bool:
        assert seconds is not None
        self.now += seconds
        return False


Run = Callable[..., tuple[list[tuple[str, float]], WorkerStats]]


@pytest.fixture
def run(engine: Engine, queue: Queue) -> Run:
    """The calls of duties, each with its time, in so many seconds; a call of one that fails is among them."""

    def run_for(
        seconds: float, *duties: tuple[str, float], failing: str = "", taking: Mapping[str, float] | None = None
    ) -> tuple[list[Any], WorkerStats]:
        time, ended = _Time(), list[bool]()
        calls: list[tuple[str, float]] = []

        def call(name: str) -> None:
            if time.now >= 100 + seconds:
                own.stop()
                return
            calls.append((name, time.now - 100))
            time.now += (taking or {}).get(name, 0.0)
            if name == failing:
                raise ValueError("it cannot be done")

        options = replace(Worker(engine, queue)._options, clock=lambda: time.now)
        listed = [Duty(name, partial(call, name), interval, is_urgent=name == "urgent") for name, interval in duties]
        own = Looper("duties", listed, options, last=lambda: ended.append(True))
        own.event = cast("Any", time)
        own.run()
        assert ended
        return calls, options.stats

    return run_for


def test_each_is_called_at_its_interval(run: Run) -> None:
    """Duties that are due together are called in their order, and each at its own interval."""
    calls, stats = run(3.0, ("a", 2.0), ("b", 1.0))
    assert calls == [("a", 0.0), ("b", 0.0), ("b", 1.0), ("a", 2.0), ("b", 2.0)]
    assert stats.failures == 0


def test_one_that_fails_keeps_no_other_waiting(run: Run) -> None:
    """It is called again and again, ever later, and each failure is counted; the others are called as ever."""
    calls, stats = run(4.0, ("bad", 60.0), ("good", 1.0), failing="bad")
    assert [at for name, at in calls if name == "good"] == [0.0, 1.0, 2.0, 3.0]
    tries = [at for name, at in calls if name == "bad"]
    assert stats.failures == len(tries) >= 3
    waits = [later - at for at, later in pairwise(tries)]
    assert waits[-1] > waits[0]


def test_slow_ones_delay_an_urgent_one_by_one_of_them(run: Run) -> None:
    """When several slow duties are due together, an urgent one is called between them whenever it is due."""
    calls, _ = run(6.5, ("urgent", 1.0), ("slow", 60.0), ("slower", 60.0), taking={"slow": 3.0, "slower": 3.0})
    assert calls == [("urgent", 0.0), ("slow", 0.0), ("urgent", 3.0), ("slower", 3.0), ("urgent", 6.0)]


def test_a_round_that_cannot_begin_can_be_stopped(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system has no thread for it, the stop has none to wait for."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    housekeeping = Housekeeping(Worker(engine, Queue("documents"))._options)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        housekeeping.start()
    housekeeping.stop()


def test_a_queue_that_cannot_be_heard_keeps_no_other_unheard(engine: Engine) -> None:
    """What one queue's schema refuses is raised when the signals of the others have been heard."""
    options = Worker(engine, Queue("broken", schema="nowhere"), Queue("sound"))._options
    broken, sound = (ServedQueue(queue, options, {}) for queue in options.queues)
    connection = DedicatedConnection(options)
    heartbeat = Heartbeat(connection, options, [broken, sound], lambda _: None)
    with pytest.raises(Exception, match="nowhere"):
        heartbeat.hear_all()
    connection.close()
    assert broken.heard_at == 0.0 < sound.heard_at
    assert not broken.dequeuing.locked()


def test_an_installation_that_refuses_keeps_no_other_waiting(engine: Engine, clock: Clock) -> None:
    """What one schema refuses is raised when the stops, groups and schedules of the others have been looked for."""
    broken, sound = Queue("broken", schema="nowhere"), Queue("sound")
    for queue in broken, sound:
        queue.periodic("coded", channel="b", every=timedelta(days=1), kind="default")(print)
    options = Worker(engine, broken, sound)._options
    queues = [ServedQueue(queue, options, {}) for queue in options.queues]
    connection, stops = DedicatedConnection(options), list[bool]()
    requests = StopRequests(by_schema(queues), options, lambda: stops.append(True))
    groups, schedules = Groups(connection, queues, options), Schedules(connection, queues, options)
    sound.admin.stop_worker(engine, options.name)
    sound.schedules.set(engine, "each", channel="a", payload="slot", every=timedelta(minutes=1))
    clock.advance(timedelta(minutes=1))
    with Session(engine) as session, session.begin(), sound.group(session, then=Enqueue(channel="a", payload="then")):
        pass
    for poll in partial(requests.poll, connection), groups.poll, schedules.poll:
        with pytest.raises(SchemaMismatch):
            poll()
    until(lambda: not groups.is_under_way and not schedules.is_under_way, "the rounds end")
    connection.close()
    assert stops == [True]
    assert [one.name for one in sound.schedules.list(engine)] == ["each", "coded"]
    assert sorted(one.payload for one in sound.dequeue(engine, limit=10)) == ["slot", "then"]


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


def test_figures_of_a_moment() -> None:
    """A program may keep, send and compare what a worker has counted, and the copy counts for itself.

    What is exported as counters never falls: the number of handlers that hang is apart.
    """
    stats = WorkerStats(taken=3, failures=1)
    copies = [copy.copy(stats), copy.deepcopy(stats), pickle.loads(pickle.dumps(stats))]  # noqa: S301 - our own
    assert copies == [stats] * 3
    for one in copies:
        one.count("failures")
    assert [one.as_dict()["failures"] for one in (stats, *copies)] == [1, 2, 2, 2]
    assert [stats.count("hung"), stats.count("hung"), stats.count("hung", -1)] == [1, 2, 1]
    assert stats.hung == 1
    assert "hung" not in stats.as_dict()
    assert "timed_out" in stats.as_dict()
