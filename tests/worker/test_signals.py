"""Stops by signals: of the worker, of the application, and a second one."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from tests.fixtures.database import Database
from tests.fixtures.drivers import async_url
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import Busy, aside, auntil, forked, given_back, is_empty, send, threads_of, until

_PROGRAM = """
import asyncio, os, signal, sys, threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from sqlalchemy_fairqueue.worker.executor import ThreadExecutor

url, marks, grace = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
queue = Queue("documents")
waits = threading.Event()
wait = ThreadExecutor.wait

async def say_and_wait(executor):
    waits.set()
    await wait(executor)

ThreadExecutor.wait = say_and_wait

def steps(delivery, context):
    (marks / f"started-{delivery.message_id}").touch()
    if delivery.payload in {"aside", "aside twice"}:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    while not (marks / "go").exists():
        if context.stopping:
            (marks / "told").touch()
            if delivery.payload == "aside twice" and waits.wait(60):
                signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        yield

@queue.handler()
def handle(delivery, context):
    for _ in steps(delivery, context):
        threading.Event().wait(0.005)

times = {"grace": timedelta(seconds=grace), "lease": timedelta(hours=1)}

def timed(worker):
    options = worker._options
    worker._options = replace(options, timings=replace(options.timings, signal_again=float(sys.argv[5])))
    return worker

if sys.argv[4] == "in a loop":
    queue = Queue("documents")

    @queue.handler()
    async def handle_in_loop(delivery, context):
        if delivery.payload == "blocks":
            handle(delivery, context)
        for _ in steps(delivery, context):
            await asyncio.sleep(0.005)

    worker = timed(AsyncWorker(create_async_engine(url), queue, concurrency=1, **times))
    asyncio.run(worker.run(handle_signals=True))
else:
    timed(Worker(create_engine(url), queue, concurrency=1, **times)).run(handle_signals=True)
(marks / "returned").touch()
"""


Program = Callable[..., Any]


@pytest.fixture
def program(database: Database, tmp_path: Path) -> Iterator[Program]:
    """A process that runs a worker; *whole*: one whose interpreter ends as that of a program does."""
    (tmp_path / "program.py").write_text(_PROGRAM)
    own = database.url.render_as_string(hide_password=False)
    with contextlib.ExitStack() as stack:

        def run(
            grace: float, where: str = "in threads", again: float = 0.0, url: str = own, *, whole: bool = False
        ) -> Any:
            words = [str(tmp_path / "program.py"), url, str(tmp_path), str(grace), where, str(again)]
            return stack.enter_context(forked(*words, folder=tmp_path, whole=whole))

        yield run


def test_a_second_signal_that_wakes_nobody(queue: Queue, engine: Engine, program: Program) -> None:
    """Nor does the end of the process wait for the grace period because nobody was woken for the second one."""
    send(engine, queue, "aside twice")
    assert program(600.0).wait(PATIENCE.total_seconds()) == 128 + signal.SIGTERM


def test_the_second_signal(queue: Queue, engine: Engine, tmp_path: Path, program: Program) -> None:
    """The second signal ends the process at once, whatever its handlers do, also where one blocks the loop."""
    [message_id] = send(engine, queue, "blocks")
    process = program(600.0, "in a loop")
    until((tmp_path / f"started-{message_id}").exists, "the handler works")

    def has_ended() -> bool:
        process.send_signal(signal.SIGTERM)
        return process.poll() is not None

    until(has_ended, "it ends")
    assert process.wait(PATIENCE.total_seconds()) == 128 + signal.SIGTERM
    assert not (tmp_path / "returned").exists()


@pytest.mark.parametrize("where", ["in threads", "in a loop"])
def test_a_signal(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, program: Program, where: str
) -> None:
    """The first signal lets the handler finish, also one that the system hands to another thread; what was not begun
    is given back, uncounted.

    A supervisor that signals a process and its group ends no graceful stop.
    """
    message_id, _ = send(engine, queue, "aside" if where == "in threads" else 1, 2)
    process = program(600.0, where, 3600.0)
    until((tmp_path / f"started-{message_id}").exists, "the handler works")
    if where == "in a loop":
        process.send_signal(signal.SIGTERM)
    until((tmp_path / "told").exists, "it is told")
    # Another signal is never merged with the first.
    process.send_signal(signal.SIGINT)
    (tmp_path / "go").touch()
    assert process.wait(PATIENCE.total_seconds()) == 0
    assert (tmp_path / "returned").exists()
    assert given_back(database) == 1


def test_the_end_of_grace_by_a_signal(
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, program: Program
) -> None:
    """A handler that never returns does not keep the process from ending with status 0."""
    [message_id] = send(engine, queue, 1)
    process = program(0.05, whole=True)
    until((tmp_path / f"started-{message_id}").exists, "the handler works")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE.total_seconds()) == 0
    assert given_back(database) == 1


@pytest.mark.parametrize("where", ["in threads", pytest.param("in a loop", marks=pytest.mark.whole)])
def test_a_signal_during_the_start(program: Program, where: str) -> None:
    """A worker that waits for a database that does not answer ends at the first signal, in good order."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = program(600.0, where, url=f"postgresql+psycopg://nobody@127.0.0.1:{silent.getsockname()[1]}/nothing")
        with silent.accept()[0]:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE.total_seconds()) == 0


_OWN_SIGNALS = """
import pathlib, signal, sys, threading
from sqlalchemy import create_engine
from sqlalchemy_fairqueue import Queue, Worker

queue = Queue("documents")

@queue.handler()
def handle(delivery, context):
    print("started", flush=True)
    while not context.stopping:
        threading.Event().wait(0.005)
    print("stopping", flush=True)
    while not pathlib.Path("go").exists():
        threading.Event().wait(0.005)

worker = Worker(create_engine(sys.argv[1]), queue, concurrency=1)

def stop(*_):
    worker.stop()
    print("told", flush=True)

signal.signal(signal.SIGTERM, stop)
worker.run()
print("returned", flush=True)
"""


def test_signal_handlers_of_the_application(queue: Queue, engine: Engine, database: Database, tmp_path: Path) -> None:
    """A program's own signal handler may call stop, also while a stop is under way."""
    send(engine, queue, 1)
    (tmp_path / "program.py").write_text(_OWN_SIGNALS)
    url = database.url.render_as_string(hide_password=False)
    with forked("program.py", url, folder=tmp_path) as program:
        assert program.stdout.readline() == "started\n"
        program.send_signal(signal.SIGTERM)
        assert program.stdout.readline() == "stopping\n"
        program.send_signal(signal.SIGTERM)
        assert program.stdout.readline() == "told\n"
        (tmp_path / "go").touch()
        assert program.stdout.read() == "told\nreturned\n"
        assert program.wait(PATIENCE.total_seconds()) == 0
    assert is_empty(database)


@pytest.mark.parametrize("how", ["start", "run"])
def test_a_signal_handler_of_the_program_while_it_starts(handled: Queue, engine: Engine, busy: Busy, how: str) -> None:
    """A stop that comes in the middle of a start, from the same thread, is not forgotten; a later one has its grace."""
    worker = Worker(engine, handled)
    threads: list[threading.Thread] = []

    def stop_at_once(*_: object) -> None:
        threads.append(threading.current_thread())
        worker.stop(timedelta())

    # While it connects to look at the schema.
    event.listen(engine, "do_connect", lambda *_: None if threads else os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, stop_at_once)
    try:
        getattr(worker, how)()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert threads == [threading.current_thread()]
    assert not threads_of(worker.name)
    handled.handler("slow")(busy)
    worker.start()
    send(engine, handled, 1, kind="slow")
    busy.begun()
    with aside(lambda: worker.stop(PATIENCE)):
        until(lambda: busy.contexts[0].stopping, "it is to stop")
        busy.go.set()
    assert worker.stats.completed == 1


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that a handler of the program's own hears: one of SIGTERM."""
    numbers: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("in_loop", [False, True])
def test_signal_handlers_come_back(handled: Queue, engine: Engine, heard: list[int], *, in_loop: bool) -> None:
    """After run the program's own handlers are back, and a loop's own work while it runs."""
    mine = signal.getsignal(signal.SIGTERM)

    async def run() -> None:
        own, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, own.set)

        async def hears() -> None:
            own.clear()
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(own.wait(), PATIENCE.total_seconds())

        inside = signal.getsignal(signal.SIGINT)
        worker = AsyncWorker(create_async_engine(async_url(engine.url)), handled)
        running = asyncio.create_task(worker.run(handle_signals=True))
        await auntil(lambda: worker._runtime is not None, "it works")
        await hears()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, PATIENCE.total_seconds())
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), heard) == (inside, mine, [])
        await hears()

    if in_loop:
        asyncio.run(run())
    else:
        Worker(engine, handled).run(handle_signals=True, drain=True)
    assert signal.getsignal(signal.SIGTERM) is mine
    os.kill(os.getpid(), signal.SIGTERM)
    until(lambda: heard == [signal.SIGTERM], "it is heard")


@pytest.mark.parametrize("first_ends", [False, True])
def test_a_signal_for_two_workers(handled: Queue, engine: Engine, heard: list[int], *, first_ends: bool) -> None:
    """One signal stops both; whichever has ended before, then the program's own handler is back."""
    mails, own = Queue("mails"), signal.getsignal(signal.SIGTERM)
    mails.handler()(print)

    async def run() -> None:
        made = create_async_engine(async_url(engine.url))
        workers = [AsyncWorker(made, queue) for queue in (handled, mails)]
        running = [asyncio.create_task(worker.run(handle_signals=True)) for worker in workers]
        await auntil(lambda: all(worker._runtime is not None for worker in workers), "both work")
        if first_ends:
            await workers[0].stop()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*running), PATIENCE.total_seconds())
        await made.dispose()

    asyncio.run(run())
    assert signal.getsignal(signal.SIGTERM) is own
    assert heard == []
