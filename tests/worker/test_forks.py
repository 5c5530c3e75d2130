"""Handlers that fork: their children end when they are told to, and none goes on as a worker."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.worker import operating_system
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import is_empty, send

Run = Callable[[str], tuple[list[str], str]]

_PROGRAM = """
import asyncio, multiprocessing, os, signal, sys, threading
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker

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
    "exit in peace": lambda: fork(sys.exit),
    "exit with words": lambda: fork(lambda: sys.exit("no more")),
}

def handle(delivery):
    said = does[delivery.payload]()
    if os.getpid() == worker:
        print(f"{delivery.payload}: {said}", flush=True)

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

def own(number, frame):
    os._exit(7)

handlers = {
    "thread": handle,
    "thread with a session": handle_with,
    "thread of a loop": handle,
    "loop": handle_in_loop,
    "loop by a plain function": wrap,
    "loop with a session": handle_with_in_loop,
    "own handler": handle,
}
queue.handler()(handlers[how])
if how == "own handler":
    signal.signal(signal.SIGTERM, own)
if "loop" in how:
    asyncio.run(AsyncWorker(create_async_engine(url), queue, concurrency=1).run(handle_signals=True, drain=True))
else:
    Worker(create_engine(url), queue, concurrency=1).run(handle_signals=True, drain=True)
print("returned", flush=True)
"""
_WHERE = ["thread", "thread of a loop", "loop"]


@pytest.fixture
def run(database: Database, tmp_path: Path) -> Run:
    """Let a process with a worker do all that there is: what it says, and what it says on stderr."""
    database.execute("create table effect (message_id bigint)")
    source = tmp_path / "program.py"
    source.write_text(textwrap.dedent(_PROGRAM))
    url = database.url.render_as_string(hide_password=False)

    def run_one(how: str) -> tuple[list[str], str]:
        with subprocess.Popen(
            [sys.executable, source, url, how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, complaints = process.communicate(timeout=PATIENCE.total_seconds())
            finally:
                if process.returncode is None:
                    # With its children, which have the pipes, too.
                    os.killpg(process.pid, signal.SIGKILL)
        return said.splitlines(), complaints

    return run_one


@pytest.mark.parametrize("where", _WHERE)
def test_a_child_ends_when_it_is_told_to(
    queue: Queue, engine: Engine, database: Database, run: Run, where: str
) -> None:
    """A worker that handles signals leaves those of its handlers' children as they were, from their beginning on."""
    send(engine, queue, "terminate", *["terminate at once"] * 20)
    said, _ = run(where)
    assert said == [f"terminate: {-signal.SIGTERM}"] + [f"terminate at once: {-signal.SIGTERM}"] * 20 + ["returned"]
    assert is_empty(database)


@pytest.mark.parametrize("where", _WHERE)
def test_a_pool(queue: Queue, engine: Engine, database: Database, run: Run, where: str) -> None:
    """So a pool of processes comes to its end in a handler, also one that is at work."""
    send(engine, queue, *["pool"] * 3)
    said, _ = run(where)
    assert said == [*["pool: 1"] * 3, "returned"]
    assert is_empty(database)


def test_an_interrupt(queue: Queue, engine: Engine, run: Run) -> None:
    """What a terminal sends to all of its processes is a KeyboardInterrupt in a child."""
    send(engine, queue, "interrupt")
    said, complaints = run("thread")
    assert said == ["interrupt: 1", "returned"]
    assert "KeyboardInterrupt" in complaints


def test_a_handler_of_the_program(queue: Queue, engine: Engine, run: Run) -> None:
    """A handler that the program had before its worker is in its place in a child."""
    send(engine, queue, "terminate")
    assert run("own handler")[0] == ["terminate: 7", "returned"]


def test_a_handler_that_was_not_set_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be put back, the default is."""
    set_to: list[object] = []
    monkeypatch.setattr(signal, "signal", lambda _, handler: set_to.append(handler))
    with operating_system.on_signal(lambda: None, 1.0, monotonic):
        set_to.clear()
    assert set_to == [signal.SIG_DFL] * 2


_NESTED = """
import os, signal
from time import monotonic
from sqlalchemy_fairqueue.worker.operating_system import on_signal

def blocked():
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])

with on_signal(print, 1.0, monotonic), on_signal(print, 1.0, monotonic):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.fork()
    told = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    if child == 0:
        os._exit(0 if told == [signal.SIG_DFL, signal.SIG_IGN] and not blocked() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told[0].__name__, blocked())
"""


def test_two_workers_of_a_process() -> None:
    """A child has what was there before the first, or what the program has set since; its parent has lost nothing."""
    command = [sys.executable, "-c", _NESTED]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE.total_seconds())
    assert ended.stdout == "0 handle set()\n"


@pytest.mark.parametrize("where", [*_WHERE, "thread with a session", "loop by a plain function", "loop with a session"])
def test_a_child_that_comes_back(queue: Queue, engine: Engine, database: Database, run: Run, where: str) -> None:
    """A child that leaves its handler ends as Python does, and handles nothing; its transaction is its parent's."""
    send(engine, queue, "return", "raise", "exit", "exit in peace", "exit with words")
    said, complaints = run(where)
    assert said == [
        "child return: 0",
        "child raise: 1",
        "child exit: 3",
        "child exit in peace: 0",
        "child exit with words: 1",
        "returned",
    ]
    assert complaints.count("Traceback") == complaints.count("ValueError: odd") == 1
    assert "in fail" in complaints
    assert "no more\n" in complaints
    assert is_empty(database)
    assert database.value("select count(*) from effect") == (5 if "session" in where else 0)


_LATER = """
import os
from sqlalchemy_fairqueue.worker.operating_system import ForkGuard

one_process = ForkGuard()
child = os.fork()
if child == 0:
    with one_process:
        print("went on")
with one_process:
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_goes_on_with_a_loop() -> None:
    """Nor does it begin a handler that its parent is about to begin."""
    command = [sys.executable, "-c", _LATER]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE.total_seconds())
    assert ended.stdout == "status 1\n"
    assert "went on with that loop" in ended.stderr
