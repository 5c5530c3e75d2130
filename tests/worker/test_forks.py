"""Handlers that fork: their children end when they are told to, and none goes on as a worker."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.worker import threads
from tests.fixtures.database import Database
from tests.fixtures.forks import Fork, run_fork
from tests.fixtures.options import PATIENCE
from tests.worker import isolated
from tests.worker.helpers import count_effects, drained, is_empty, send

_PROGRAM = """
import asyncio, multiprocessing, os, signal, sys, threading
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker

os.setsid()
url, how = sys.argv[1:]
queue = Queue("documents")
worker = os.getpid()
children = multiprocessing.get_context("fork")

def wait(ready=None):
    if ready is not None:
        os.write(ready, b"1")
    threading.Event().wait()

def end(number, at_once):
    there, ready = os.pipe()
    child = children.Process(target=wait, args=(ready,))
    child.start()
    if not at_once:
        os.read(there, 1)
    os.kill(child.pid, number)
    child.join()
    return child.exitcode

def pool():
    with children.Pool(2) as pool:
        pool.apply_async(wait)
        return pool.apply(abs, [-1])

def fork(leave):
    child = os.fork()
    if child == 0:
        print("child", end=" ")
        return leave()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def fail():
    raise ValueError("odd")

does = {
    "pool": pool,
    "terminate": lambda: end(signal.SIGTERM, False),
    "terminate at once": lambda: end(signal.SIGTERM, True),
    "interrupt": lambda: end(signal.SIGINT, False),
    "return": lambda: fork(lambda: None),
    "raise": lambda: fork(fail),
    "exit": lambda: fork(lambda: sys.exit(3)),
    "exit with words": lambda: fork(lambda: sys.exit("no more")),
}

def handle(delivery):
    said = does[delivery.payload]()
    if os.getpid() == worker:
        print(f"{delivery.kind}, {delivery.payload}: {said}", flush=True)

def handle_with(delivery, session):
    session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})
    handle(delivery)

async def handle_in_loop(delivery):
    handle(delivery)

async def handle_with_in_loop(delivery, session):
    await session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})
    handle(delivery)

def wrap(delivery):
    return handle_in_loop(delivery)

queue.handler("thread")(handle)
if how == "loop":
    queue.handler("loop")(handle_in_loop)
    queue.handler("loop by a plain function")(wrap)
    queue.handler("with a session")(handle_with_in_loop)
    asyncio.run(AsyncWorker(create_async_engine(url), queue, concurrency=1).run(handle_signals=True, drain=True))
else:
    queue.handler("with a session")(handle_with)
    Worker(create_engine(url), queue, concurrency=1).run(handle_signals=True, drain=True)
print("returned", flush=True)
"""


_ENDS = {
    "terminate": -signal.SIGTERM,
    "terminate at once": -signal.SIGTERM,
    # Also one that is at work.
    "pool": 1,
}
_COMES_BACK = {"return": 0, "raise": 1, "exit": 3, "exit with words": 1}


@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        pytest.param("thread", ["thread", "with a session"], marks=pytest.mark.whole),
        ("loop", ["thread", "loop", "loop by a plain function", "with a session"]),
    ],
)
@pytest.mark.usefixtures("effects")
def test_children_end(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, how: str, kinds: list[str]
) -> None:
    """A worker that handles signals leaves those of its handlers' children as they were, from their beginning on.

    A child that leaves its handler ends as Python does, and handles nothing; its transaction is its parent's.
    """
    expected: list[str] = []
    for kind in kinds:
        told = [] if kind in {"with a session", "loop by a plain function"} else [*_ENDS, *["terminate at once"] * 9]
        if how == kind == "thread":
            # What a terminal sends to all of its processes; asyncio has a handler of its own for it.
            told.append("interrupt")
        send(engine, queue, *told, *_COMES_BACK, kind=kind)
        expected += [f"{kind}, {what}: {_ENDS.get(what, 1)}" for what in told]
        expected += [f"child {kind}, {what}: {status}" for what, status in _COMES_BACK.items()]
    (tmp_path / "program.py").write_text(_PROGRAM)
    url = database.url.render_as_string(hide_password=False)
    with Fork(["python", "program.py", url, how], tmp_path, os.environ) as process:
        try:
            process.wait(PATIENCE.total_seconds())
        finally:
            if process.returncode is None:
                # With its children, which have the pipes, too.
                os.killpg(process.pid, signal.SIGKILL)
        said, complaints = process.stdout.read(), process.stderr.read()
    assert said.splitlines() == [*expected, "returned"]
    assert complaints.count("ValueError: odd") == complaints.count("in fail") == len(kinds)
    assert ("KeyboardInterrupt" in complaints) == (how == "thread")
    assert complaints.count("no more\n") == len(kinds)
    assert is_empty(database)
    assert count_effects(database) == len(_COMES_BACK)


@pytest.mark.usefixtures("forked_children")
def test_a_child_of_a_handler_in_a_child_process(queue: Queue, engine: Engine) -> None:
    """A child that leaves its handler answers nothing to the worker."""
    queue.configure(engine, result_retention=timedelta(hours=1))
    queue.handler(isolation="process")(isolated.fork)
    ids = send(engine, queue, 1, 2)
    drained(engine, queue, concurrency=1)
    assert [queue.result(engine, one) for one in ids] == ["status 0"] * 2


def test_a_worker_whose_loop_is_closed() -> None:
    """It keeps no signal from other workers, and ends no process by not having stopped."""
    heard: list[bool] = []

    def closed() -> None:
        raise RuntimeError("Event loop is closed")

    with threads.on_signal(closed, 0.0, monotonic), threads.on_signal(lambda: heard.append(True), 3600.0, monotonic):
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
    assert heard == [True]


def test_a_handler_that_was_not_set_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be put back, the default is."""
    set_to: dict[int, object] = {}
    monkeypatch.setattr(signal, "signal", set_to.__setitem__)
    monkeypatch.setattr(signal, "getsignal", set_to.get)
    with threads.on_signal(lambda: None, 1.0, monotonic):
        assert signal.SIG_DFL not in set_to.values()
    assert list(set_to.values()) == [signal.SIG_DFL] * 2


_NESTED = """
import os, signal
from time import monotonic
from sqlalchemy_fairqueue.worker.threads import ForkGuard, on_signal

def blocked():
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])

with on_signal(print, 1.0, monotonic), on_signal(print, 1.0, monotonic):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.fork()
    told = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    if child == 0:
        os._exit(0 if told == [signal.SIG_DFL, signal.SIG_IGN] and not blocked() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told[0].__name__, blocked(), flush=True)

one_process = ForkGuard()
child = os.fork()
if child == 0:
    with one_process:
        print("went on")
with one_process:
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_two_workers_of_a_process_and_a_child_with_its_loop(tmp_path: Path) -> None:
    """A child has what was there before the first, or what the program has set since; its parent has lost nothing.

    A child that goes on with a loop begins no handler that its parent is about to begin.
    """
    (tmp_path / "program.py").write_text(_NESTED)
    ended = run_fork(["python", "program.py"], tmp_path, os.environ, PATIENCE.total_seconds())
    assert ended.stdout == "0 _dispatch set()\nstatus 1\n"
    assert "went on with that loop" in ended.stderr
